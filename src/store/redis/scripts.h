/* ------------------------------------------------------------------------------------------------
 * >>redis-scripts - what a server does in one step, and cannot do by one command
 */

#ifndef RLOCK_STORE_REDIS_SCRIPTS_H
#define RLOCK_STORE_REDIS_SCRIPTS_H

#include "base/platform.h"

#define RLOCK__FENCE_TTL_MS "86400000" /* how long a fence counter outlives the last lease */

/* The scripts. KEYS[1] is the lock, KEYS[2] its fence counter where one is wanted; ARGV[1] is the
 * token, ARGV[2] the lease in ms (of a release on the Redisson wire: the channel), ARGV[3] how many
 * fences in a row are wanted.
 * Acquire answers the fence as a string ("0" without one), or the time left of another's hold as
 * an integer. Renew and release answer 1, 0 (another's) or -1 (gone). No script shortens a time to
 * live. The PTTL behind a read makes the server remember the key for client tracking; one before a
 * PEXPIRE would be forgotten again (Redis 7.0). PEXPIRE works on a server that is out of memory.
 * What a user may not do ends a script with what it did before: so the fence comes first and the
 * lock last, and a hash that may not be given a time to live goes again. */
#define RLOCK__PIECE_EXTEND                 \
    "local p=redis.call('PTTL',KEYS[1]) "   \
    "if p>=0 and p<tonumber(ARGV[2]) then " \
    "redis.call('PEXPIRE',KEYS[1],ARGV[2]) end "
#define RLOCK__PIECE_NO_COUNTER "return {err='ERR the fence counter is no number below 2^53'} end "
#define RLOCK__PIECE_FENCE(call, pcall, key, lease, count)                                       \
    "local f='0' if " key " then local n=" pcall "('GET'," key ") or '0' "                       \
    "if type(n)=='table' then return n end "                                                     \
    "if not n:match('^%d+$') or n+" count ">=2^53 then " RLOCK__PIECE_NO_COUNTER "local t=" call \
    "('TIME') f=t[1]*1000000+t[2] if n+1>f then f=n+1 end " call "('SET'," key                   \
    ",string.format('%.0f',f+" count "-1),'PX'," lease "+" RLOCK__FENCE_TTL_MS                   \
    ") f=string.format('%.0f',f) end "

#define RLOCK__LUA_STRING_ACQUIRE                                                         \
    "local v=redis.call('GET',KEYS[1]) "                                                  \
    "if v and v~=ARGV[1] then return redis.call('PTTL',KEYS[1]) end " RLOCK__PIECE_FENCE( \
        "redis.call", "redis.pcall", "KEYS[2]", "ARGV[2]",                                \
        "ARGV[3]") "if v then " RLOCK__PIECE_EXTEND                                       \
                   "else redis.call('SET',KEYS[1],ARGV[1],'PX',ARGV[2]) end return f"
#define RLOCK__SHA_STRING_ACQUIRE "442ff2b90b53f4374c5a1a25711b15e3b48e0243"

#define RLOCK__LUA_STRING_RENEW                                        \
    "local v=redis.call('GET',KEYS[1]) "                               \
    "if v~=ARGV[1] then return v and 0 or -1 end " RLOCK__PIECE_EXTEND \
    "redis.call('PTTL',KEYS[1]) return 1"
#define RLOCK__SHA_STRING_RENEW "a10cfaff02625977ab8714eeb58bbd699650e0bc"

#define RLOCK__LUA_STRING_RELEASE                  \
    "local v=redis.call('GET',KEYS[1]) "           \
    "if v~=ARGV[1] then return v and 0 or -1 end " \
    "return redis.call('DEL',KEYS[1])"
#define RLOCK__SHA_STRING_RELEASE "eb40cd7485ca4a152d5e69319b7f3c58f7717750"

#define RLOCK__LUA_REDISSON_ACQUIRE                                  \
    "local mine=redis.call('HEXISTS',KEYS[1],ARGV[1])==1 "           \
    "if not mine and redis.call('EXISTS',KEYS[1])==1 then "          \
    "return redis.call('PTTL',KEYS[1]) end " RLOCK__PIECE_FENCE(     \
        "redis.call", "redis.pcall", "KEYS[2]", "ARGV[2]",           \
        "ARGV[3]") "if mine then " RLOCK__PIECE_EXTEND               \
                   "else redis.call('HSET',KEYS[1],ARGV[1],1) "      \
                   "local r=redis.pcall('PEXPIRE',KEYS[1],ARGV[2]) " \
                   "if type(r)=='table' then redis.call('DEL',KEYS[1]) return r end end return f"
#define RLOCK__SHA_REDISSON_ACQUIRE "3fe79bc0ae9a8c2b6ddd512d20650f9b5cdc3201"

#define RLOCK__LUA_REDISSON_RENEW                                    \
    "if redis.call('HEXISTS',KEYS[1],ARGV[1])==0 then "              \
    "return redis.call('EXISTS',KEYS[1])-1 end " RLOCK__PIECE_EXTEND \
    "redis.call('PTTL',KEYS[1]) return 1"
#define RLOCK__SHA_REDISSON_RENEW "2a8e0a25d16f8cea28f13737e83e214e0aab4ce4"

/* A user who may not publish still releases: the message is a courtesy (pcall). */
#define RLOCK__LUA_REDISSON_RELEASE                     \
    "if redis.call('HEXISTS',KEYS[1],ARGV[1])==0 then " \
    "return redis.call('EXISTS',KEYS[1])-1 end "        \
    "redis.call('DEL',KEYS[1]) redis.pcall('PUBLISH',ARGV[2],'0') return 1"
#define RLOCK__SHA_REDISSON_RELEASE "27355ddf756b662730bc09429565c3a2fea2fbf6"

/* Questions: how the key stands, in words of numbers as rlock__parse_info reads them, and a token;
 * and away with it. A key of another type ends both with WRONGTYPE. */
#define RLOCK__LUA_STRING_INSPECT              \
    "local v=redis.call('GET',KEYS[1]) "       \
    "if not v then return '0 0 -1 1 -1 ' end " \
    "return '1 '..redis.call('PTTL',KEYS[1])..' -1 0 -1 '..v"
#define RLOCK__SHA_STRING_INSPECT "2fe63c4438fa4a5c98e6671ff11f1c23338cf2d4"

#define RLOCK__LUA_STRING_FORCE \
    "return redis.call('GET',KEYS[1]) and redis.call('DEL',KEYS[1]) or 0"
#define RLOCK__SHA_STRING_FORCE "807c8c4f097f53d564ef87af5695f8242dd4c9fa"

#define RLOCK__LUA_REDISSON_INSPECT            \
    "local v=redis.call('HKEYS',KEYS[1])[1] "  \
    "if not v then return '0 0 -1 1 -1 ' end " \
    "return '1 '..redis.call('PTTL',KEYS[1])..' -1 0 -1 '..v"
#define RLOCK__SHA_REDISSON_INSPECT "879b84484de8c72c8ed9b84f8ed748debd6dd238"

#define RLOCK__LUA_REDISSON_FORCE                         \
    "if redis.call('HLEN',KEYS[1])==0 then return 0 end " \
    "redis.call('DEL',KEYS[1]) redis.pcall('PUBLISH',ARGV[1],'0') return 1"
#define RLOCK__SHA_REDISSON_FORCE "c7ffc93c8d655322d017805a184cf794fbe72d0f"

/* Several keys, all or none; behind them their fence counters, where a fence is wanted: ARGV[3].
 * As above otherwise. Of a hold that lost one key the others go with its release. */
#define RLOCK__LUA_KEYS_ACQUIRE                                                           \
    "local c,n,v,f=redis.call,#KEYS,{},'0' if ARGV[3] then n=n/2 end "                    \
    "for i=1,n do v[i]=c('GET',KEYS[i]) "                                                 \
    "if v[i] and v[i]~=ARGV[1] then return c('PTTL',KEYS[i]) end end "                    \
    "if ARGV[3] then local t=c('TIME') f=t[1]*1000000+t[2] for i=n+1,#KEYS do "           \
    "local m=c('GET',KEYS[i]) or '0' "                                                    \
    "if not m:match('^%d+$') or m+ARGV[3]>=2^53 then " RLOCK__PIECE_NO_COUNTER            \
    "if m+1>f then f=m+1 end end "                                                        \
    "local s=string.format('%.0f',f+ARGV[3]-1) f=string.format('%.0f',f) "                \
    "for i=n+1,#KEYS do c('SET',KEYS[i],s,'PX',ARGV[2]+" RLOCK__FENCE_TTL_MS ") end end " \
    "for i=1,n do if not v[i] then c('SET',KEYS[i],ARGV[1],'PX',ARGV[2]) else "           \
    "local p=c('PTTL',KEYS[i]) if p>=0 and p<tonumber(ARGV[2]) then "                     \
    "c('PEXPIRE',KEYS[i],ARGV[2]) end end end return f"
#define RLOCK__SHA_KEYS_ACQUIRE "bfb3059ae77277b66a6adae75cbad82b8c0efc03"

#define RLOCK__LUA_KEYS_RENEW                                              \
    "local c=redis.call for i,k in ipairs(KEYS) do local v=c('GET',k) "    \
    "if v~=ARGV[1] then return v and 0 or -1 end end "                     \
    "for i,k in ipairs(KEYS) do local p=c('PTTL',k) "                      \
    "if p>=0 and p<tonumber(ARGV[2]) then c('PEXPIRE',k,ARGV[2]) end end " \
    "c('EXISTS',unpack(KEYS)) return 1"
#define RLOCK__SHA_KEYS_RENEW "ed656cb7efe41e8e2a4a528b4097966b4f71916b"

#define RLOCK__LUA_KEYS_RELEASE                                                \
    "local r=1 for i,k in ipairs(KEYS) do local v=redis.pcall('GET',k) "       \
    "if v==ARGV[1] then redis.call('DEL',k) elseif type(v)=='table' then r=v " \
    "elseif r==1 then r=v and 0 or -1 end end return r"
#define RLOCK__SHA_KEYS_RELEASE "b1bd06aea689e42a40db87e229b1d9ae5d754d58"

/* The queued kinds: one script, for ARGV[1] as in rlock_op.
 * KEYS[1] is a sorted set of the holders, each with the time its lease ends in ms (the server's
 * clock), negative if it weighs more than one: so what they weigh together is counted without
 * looking at each. Where the number of permits was changed, permits:<n> stands there too, at -inf.
 * KEYS[2] is the line, in order, with half a place more for who cannot be called. KEYS[3] is the
 * fence counter, where one is wanted. A member is <client>:<number>:<weight><sort>, the sort as in
 * rlock__sort; ARGV[2] is the one it is about, [3] the permits, [4] how long a turn is in ms, [5]
 * the head of the channels of clients.
 * Who comes to the head of the line holds, for one turn, and is called by <number>:<key> on its
 * client's channel, to ask itself and get its lease; whom nobody hears is skipped. So holds are
 * given out in one place only, and one that lets its turn pass is a hold that expired.
 * One sort is on a key at a time: who holds has found no other there, and none at the head of the
 * line. So what is read anyway tells another sort, and what is nobody's; a GET of what is no
 * string then ends the script as if the key were of another type, and nothing is written but that
 * dead holds go. In the line, a key of our own, what is nobody's is taken away. The score of a fair
 * hold is always negative: version 0.1.0, which knows no sorts, is ended by it. */
#define RLOCK__PIECE_LINE                                                                         \
    "local c,p,K,Q,op,me,W=redis.call,redis.pcall,KEYS[1],KEYS[2],ARGV[1],ARGV[2],'WITHSCORES' "  \
    "local t,used,permits,set,first,mine,wrong,head=c('TIME') "                                   \
    "local now=t[1]*1000+math.floor(t[2]/1000) "                                                  \
    "local X,S=me:sub(-1),'^[%x-]+:%d+:(%d+)([fws])$' "                                           \
    "local function weight(m,any) local w,x=m:match(S) if x==X or any and x then return w+0 end " \
    "if op~='2' then c('GET',K) c('GET',Q) end wrong=true return 0 end "                          \
    "local function touch(ms) local r=p('PEXPIRE',K,ms,'GT') if r==1 then return true end "       \
    "if r~=0 then p('ZREM',K,me..X) end r=c('PTTL',K) return r==-1 or r>=ms+0 end "               \
    "local function hold(m,w,e,ms,r) "                                                            \
    "local n=p('ZADD',K,((w>1 or X=='f') and -e or e)..'',m) "                                    \
    "if type(n)=='table' then return n end "                                                      \
    "r=r or p('PEXPIRE',K,ms) if type(r)~='table' then return end "                               \
    "if n==1 then c('ZREM',K,m) end return r end "

/* ARGV[6] the lease. */
#define RLOCK__LUA_LINE_RENEW                                                   \
    RLOCK__PIECE_LINE                                                           \
    "local e=math.abs(c('ZSCORE',K,me) or 0) if e<=now then return -1 end "     \
    "local l=ARGV[6] local r=e<now+l and hold(me,weight(me),now+l,l,touch(l)) " \
    "if r then return r end c('ZSCORE',K,me) return 1"
#define RLOCK__SHA_LINE_RENEW "f8b49a0956c5fdec7698abfd510e707613a8ca37"

#define RLOCK__PIECE_LINE_TWO                              \
    "local two=c('ZRANGE',K,'0','1',W) "                   \
    "local function line(i,h) h=h or c('ZRANGE',Q,i,i,W) " \
    "while h[1] and not h[1]:match(S) do c('ZREM',Q,h[1]) h=c('ZRANGE',Q,i,i,W) end return h end "

/* ARGV[6] the lease, [7] how it stands in line: 1, 1.5 if it cannot be called, 0 not at all;
 * [8] the writer that is no obstacle, or empty; [9] how many fences. The short ways come first; but
 * even a first try may find its token there, if it is executed late, behind the second. A server
 * that is out of memory refuses only the first write of a script, and only if that may need any: so
 * one that needs none comes first, where something of the key is there already: a PEXPIRE, or
 * before Redis 7.0, which does not know GT and lets such an error count for nothing, a ZREM of
 * nobody. Answers the fence, with a + behind it if who is next in line is of the same client. */
#define RLOCK__PIECE_LINE_FENCE RLOCK__PIECE_FENCE("c", "p", "KEYS[3]", "ARGV[6]", "ARGV[9]")
#define RLOCK__PIECE_LINE_SHORT                                                             \
    "local e=math.abs(two[1]==me and two[2] or two[3] and c('ZSCORE',K,me) or 0) "          \
    "local function grant(new) local l=set and '" RLOCK__FENCE_TTL_MS "' or ARGV[6] "       \
    "local r=not new and touch(l) " RLOCK__PIECE_LINE_FENCE                                 \
    "r=hold(me,weight(me),math.max(now+ARGV[6],e),l,r) if r or new then return r or f end " \
    "local h=p('ZRANGE',Q,'0','0')[1] "                                                     \
    "return h and h:sub(1,36)==me:sub(1,36) and f..'+' or f end "                           \
    "if op=='0' then if not two[1] and c('EXISTS',Q)==0 then return grant(true) end "       \
    "if e>now then return grant() end end "

/* ARGV[6] who asks right behind, and need not be called. What is wrong with the key or its line is
 * no matter of who lets go: it only serves nobody. */
#define RLOCK__PIECE_LINE_RELEASE                                                \
    "if op=='2' then if e==0 then c('ZREM',Q,me) else c('ZREM',K,me) end "       \
    "if two[1]==me and not two[3] then two={} end head=p('ZRANGE',Q,'0','0',W) " \
    "if not head[1] then return e>now and 1 or -1 end end "

#define RLOCK__PIECE_LINE_OFFER                                                                   \
    "local function ends(a,b,...) return c('ZRANGEBYSCORE',K,a,b,W,...) end "                     \
    "local function one(m,s) "                                                                    \
    "if s=='-inf' then set=true permits=(X=='s' and m:match('^permits:(%d+)$') or weight(''))+0 " \
    "return end local l=math.abs(s) local w=weight(m,l<=now) "                                    \
    "if l>now then used,first=used+w,l end end "                                                  \
    "local function count() used,permits=0,ARGV[3]+0 if two[1] then one(two[1],two[2]) end "      \
    "if not two[3] then return end one(two[3],two[4]) if not first then "                         \
    "local d=ends('('..now,'+inf','LIMIT','0','1') if d[1] then one(d[1],d[2]) end end "          \
    "used=c('ZCOUNT',K,'('..now,'+inf') local h=ends('-inf','('..-now) "                          \
    "for i=1,#h,2 do one(h[i],h[i+1]) end end "                                                   \
    "local function away(d,any) for i=1,#d,2 do weight(d[i],any) end "                            \
    "for i=1,#d,2 do c('ZREM',K,d[i]) end end "                                                   \
    "local function call(m) "                                                                     \
    "return p('PUBLISH',ARGV[5]..m:sub(1,36),m:match(':(%d+):')..':'..K)~=0 end "                 \
    "local function offer() while used<permits do "                                               \
    "local h=line('0',head) head=nil local m=h[1] if not m then return true end "                 \
    "local w=weight(m) if wrong then return end if w<=permits then if used+w>permits or "         \
    "hold(m,w,now+ARGV[4],ARGV[4],two[1] and touch(ARGV[4])) then return end "                    \
    "used,two=used+w,{m,0,m,0} if m==me then mine=true "                                          \
    "elseif m~=ARGV[6] and h[2]%1==0 and not call(m) then used=used-w c('ZREM',K,m) end end "     \
    "c('ZREM',Q,m) end end "

/* A hold for one turn goes again where the fence is refused. */
#define RLOCK__PIECE_LINE_ACQUIRE                                                                 \
    "count() if op=='2' then if not wrong then offer() end return e>now and 1 or -1 end "         \
    "local s if used<permits and two[1] then away(ends(-now..'',now..''),true) end "              \
    "if ARGV[8]~='' and math.abs(c('ZSCORE',K,ARGV[8]) or 0)>now then s=true c('ZREM',Q,me) end " \
    "if s or offer() and used+weight(me)<=permits or mine then local r=grant() "                  \
    "if mine and type(r)=='table' then c('ZREM',K,me) end return r end "                          \
    "if ARGV[7]~='0' then local l=ARGV[4]*30 ..'' c('PEXPIRE',Q,l) local q=line('-1')[2] "        \
    "if c('ZADD',Q,'NX',math.floor((q or 0)+1)+ARGV[7]-1 ..'',me)==0 then "                       \
    "c('ZADD',Q,math.floor(c('ZSCORE',Q,me))+ARGV[7]-1 ..'',me) end "                             \
    "if not q then c('PEXPIRE',Q,l) end end "                                                     \
    "local l=two[3] and tonumber(ends('('..now,'+inf','LIMIT','0','1')[2]) "                      \
    "l=math.min(l or first or 0,first or l or 0) return l>0 and l-now or -1"

#define RLOCK__LUA_LINE                                                                       \
    RLOCK__PIECE_LINE RLOCK__PIECE_LINE_TWO RLOCK__PIECE_LINE_SHORT RLOCK__PIECE_LINE_RELEASE \
        RLOCK__PIECE_LINE_OFFER RLOCK__PIECE_LINE_ACQUIRE
#define RLOCK__SHA_LINE "72b6e0779134ff2f26cd1d7562bde8ddc01d16d9"

/* How the key stands; by force; or ARGV[6] is how many permits there are, 0 = as many as each says
 * itself. */
#define RLOCK__LUA_LINE_ASK                                                                     \
    RLOCK__PIECE_LINE RLOCK__PIECE_LINE_TWO RLOCK__PIECE_LINE_OFFER                             \
        "local l,h=ends('('..now,'+inf'),ends('(-inf','('..-now) local held=(#l+#h)/2 count() " \
        "local q=c('ZRANGE',Q,'0','0')[1] if q and q:match(S) then weight(q) end "              \
        "if op=='3' then local e=math.max(l[#l] or now,-(h[2] or -now)) "                       \
        "return ('%d %d %d %d %d %s'):format(held,e-now,c('ZCARD',Q),"                          \
        "math.max(permits-used,0),c('ZRANK',Q,me) or -1,"                                       \
        "((l[1] or h[1] or ''):gsub(':%d+.$',''))) end "                                        \
        "if op=='4' then away(ends(-now..'',now..''),true) away(l) away(h) "                    \
        "for i=1,#l,2 do call(l[i]) end for i=1,#h,2 do call(h[i]) end "                        \
        "else held=0 local m,D='permits:'..ARGV[6],'" RLOCK__FENCE_TTL_MS "' local r=touch(D) " \
        "if ARGV[6]~='0' then c('ZADD',K,'-inf',m) if not r then c('PEXPIRE',K,D) end end "     \
        "if two[2]=='-inf' and two[1]~=m then c('ZREM',K,two[1]) end end "                      \
        "two={me,0,me,0} count() offer() return held"
#define RLOCK__SHA_LINE_ASK "fee76279c5787b05ed1ce978309183e584c06e29"

/* Many renewals: ARGV[1] is what the tokens have in common, ARGV[2] the lease, the rest the tokens'
 * ends. Answers a 1 for each key that was renewed, and a 0 for each that has to be asked for alone.
 * The server remembers for push what is read behind the writes; up to Redis 7 it does so with all
 * keys of the script for each command that reads, so there are only two. GT is of Redis 7.0:
 * https://redis.io/docs/latest/commands/pexpire/ */
#define RLOCK__LUA_STRING_RENEW_MANY                                              \
    "local c,r,h,l=redis.call,{},ARGV[1],ARGV[2] local v=c('MGET',unpack(KEYS)) " \
    "for i,k in ipairs(KEYS) do r[i]='0' "                                        \
    "if v[i]==h..ARGV[i+2] then c('PEXPIRE',k,l,'GT') r[i]='1' end end "          \
    "c('EXISTS',unpack(KEYS)) return table.concat(r)"
#define RLOCK__SHA_STRING_RENEW_MANY "f02123579fc331f4e16ffc275d473f8732b1c27f"

typedef struct rlock__script {
    const char *sha, *lua;
} rlock__script;

static const rlock__script rlock__renew_many = {RLOCK__SHA_STRING_RENEW_MANY,
                                                RLOCK__LUA_STRING_RENEW_MANY};

enum { RLOCK__ROW_STRING, RLOCK__ROW_REDISSON, RLOCK__ROW_KEYS, RLOCK__ROW_LINE, RLOCK__ROWS };

#define RLOCK__SCRIPT(name) \
    { RLOCK__SHA_##name, RLOCK__LUA_##name }
#define RLOCK__NO_SCRIPT \
    { NULL, NULL }

static const rlock__script
    rlock__scripts[RLOCK__HAS_KINDS ? RLOCK__ROWS : RLOCK__ROW_KEYS][RLOCK__HAS_KINDS ? 6 : 3] = {
#if RLOCK__HAS_KINDS
        /* [row][rlock_op] */
        {RLOCK__SCRIPT(STRING_ACQUIRE), RLOCK__SCRIPT(STRING_RENEW), RLOCK__SCRIPT(STRING_RELEASE),
         RLOCK__SCRIPT(STRING_INSPECT), RLOCK__SCRIPT(STRING_FORCE), RLOCK__NO_SCRIPT},
        {RLOCK__SCRIPT(REDISSON_ACQUIRE), RLOCK__SCRIPT(REDISSON_RENEW),
         RLOCK__SCRIPT(REDISSON_RELEASE), RLOCK__SCRIPT(REDISSON_INSPECT),
         RLOCK__SCRIPT(REDISSON_FORCE), RLOCK__NO_SCRIPT},
        {RLOCK__SCRIPT(KEYS_ACQUIRE), RLOCK__SCRIPT(KEYS_RENEW), RLOCK__SCRIPT(KEYS_RELEASE),
         RLOCK__NO_SCRIPT, RLOCK__NO_SCRIPT, RLOCK__NO_SCRIPT},
        {RLOCK__SCRIPT(LINE), RLOCK__SCRIPT(LINE_RENEW), RLOCK__SCRIPT(LINE),
         RLOCK__SCRIPT(LINE_ASK), RLOCK__SCRIPT(LINE_ASK), RLOCK__SCRIPT(LINE_ASK)}};
#else
        {RLOCK__SCRIPT(STRING_ACQUIRE), RLOCK__SCRIPT(STRING_RENEW), RLOCK__SCRIPT(STRING_RELEASE)},
        {RLOCK__SCRIPT(REDISSON_ACQUIRE), RLOCK__SCRIPT(REDISSON_RENEW),
         RLOCK__SCRIPT(REDISSON_RELEASE)}};
#endif

#endif /* RLOCK_STORE_REDIS_SCRIPTS_H */
