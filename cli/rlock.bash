# Completion of rlock for bash: its subcommands, its options, what some of these take, and the command that it runs.

# The words are those between blanks: COMP_WORDS is split at the ":" of a URL too.
_rlock() {
    local words=() word before first='' key='' begun='' options i at=0 joined
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    case ${COMP_LINE:0:COMP_POINT} in *' ') words+=('') ;; esac
    word=${words[${#words[@]} - 1]} before=${words[${#words[@]} - 2]}
    COMPREPLY=()

    # Where the command begins, its own completion goes on.
    for ((i = 1; i < ${#words[@]} - 1; i++)); do
        case ${words[i]} in
            --)
                i=$((i + 1)) begun=yes
                break
                ;;
            -u | --url | --quorum | --url-file | --password-file | -w | --wait | -l | --lease | -k | --key | --kind | --permits | \
                --weight | --fence-file | --grace | --kill-after | --on-lost-signal | --busy-status | --give-up | --at-least | \
                --on-lead | --on-lost | --state-file | --cacert | --cert | --cert-key | --map | --description) i=$((i + 1)) ;;
            -*) ;;
            *)
                if [ -z "$key$first" ] && [[ ${words[i]} =~ ^(elect|acquire|renew|release|inspect|force-release|ls|top)$ ]]; then
                    first=${words[i]}
                elif [ -n "$key" ]; then
                    begun=yes
                    break
                else
                    key=${words[i]}
                fi
                ;;
        esac
    done
    if [ -n "$begun" ] || { [ -n "$key" ] && [ "$i" -lt ${#words[@]} ] && [[ $word != -* ]]; }; then
        [[ $first =~ ^(elect)?$ ]] && declare -F _command_offset >/dev/null || return
        for ((before = 0; before < i; before++)); do
            joined=
            while [ "$joined" != "${words[before]}" ] && [ "$at" -lt ${#COMP_WORDS[@]} ]; do
                joined+=${COMP_WORDS[at++]}
            done
        done
        _command_offset "$at"
        return
    fi

    case $word in --*=*) before=${word%%=*} word=${word#*=} ;; esac
    case $before in
        --on-lost-signal) options='TERM INT HUP QUIT USR1 USR2 ABRT KILL' ;;
        --kind) options='mutex fair read write semaphore' ;;
        -u | --url) options='redis:// rediss:// unix:// redis+sentinel:// redis+cluster:// postgres:// zookeeper:// mysql://' ;;
        --url-file | --password-file | --fence-file | --state-file | --cacert | --cert | --cert-key)
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            return
            ;;
        --quorum | -w | --wait | -l | --lease | -k | --key | --permits | --weight | --grace | --kill-after | --busy-status | \
            --give-up | --at-least | --on-lead | --on-lost | --map | --description) return ;;
        *)
            options='-u --url --quorum --url-file --password-file --map --cacert --cert --cert-key -v --verbose -h --help -V --version'
            case $first in
                '') options+=' -n --try -w --wait -l --lease -k --key --kind --permits --weight --fence-file --keep-env --description'
                    options+=' --kill-after --on-lost-signal --busy-status --at-least' ;;
                elect) options+=' -l --lease -k --key --kind --permits --weight --fence-file --keep-env --description --grace'
                    options+=' --kill-after --on-lost-signal --give-up --on-lead --on-lost --state-file' ;;
                acquire) options+=' --json -n --try -w --wait -l --lease -k --key --kind --permits --weight --busy-status' ;;
                renew) options+=' --json -l --lease -k --key --kind --permits --weight' ;;
                release) options+=' -k --key --kind --permits --weight' ;;
                inspect | force-release) options+=' --json -n --try -w --wait --kind --permits' ;;
                *) options+=' --json -n --try -w --wait' ;;
            esac
            if [[ $word != -* ]]; then
                options=
                [ -n "$key$first" ] || options='elect acquire renew release inspect force-release ls top'
            fi
            ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
    case $word in *:*) COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*:}"}"}") ;; esac
}
complete -F _rlock rlock
