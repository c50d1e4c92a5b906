#compdef rlock
# Completion of rlock for zsh: its subcommands, its options, what some of these take, and the command that it runs.

_rlock() {
    local -a subcommands=(
        'elect:run a command while this one leads'
        'acquire:acquire a key and print a token'
        'renew:renew what was acquired, by its token'
        'release:release what was acquired, by its token'
        'inspect:show the holder of a key'
        'force-release:take a key away from its holders'
        'ls:list all locks'
        'top:show all locks as a live table'
    )
    local -a every=(
        '(--quorum --url-file -u --url)'{-u,--url=}'[the server]:URL:(redis\:// rediss\:// unix\:// redis+sentinel\:// redis+cluster\:// postgres\:// zookeeper\:// mysql\://)'
        '(-u --url --url-file)--quorum=[a majority of these servers]:URL,URL,URL: '
        '(-u --url --quorum)--url-file=[a file with the URL of the server]:file:_files'
        '*''--map=[where an announced address is reached]:FROM=TO: '
        '--password-file=[a file with the password]:file:_files'
        '--cacert=[the certificate authorities]:PEM file:_files'
        '--cert=[the certificate of this client]:PEM file:_files'
        '--cert-key=[the key of the certificate]:PEM file:_files'
        '(-v --verbose)'{-v,--verbose}'[print what happens]'
        '(- *)'{-h,--help}'[print what the options are]'
        '(- *)'{-V,--version}'[print the version]'
    )
    local -a lease=('(-l --lease)'{-l,--lease=}'[how long others wait if this machine dies]:duration (30s): ')
    local -a held=(
        '*'{-k,--key=}'[one more key]:key: '
        '--weight=[how many permits to take]:number: '
    )
    local -a lock=(
        '--description=[what inspect, ls and top show of the holder]:text: '
        '--keep-env[the command keeps a URL with a password]'
        '--fence-file=[where to write the fencing token]:file:_files'
        '--on-lost-signal=[the signal when the lock is lost]:signal:(TERM INT HUP QUIT USR1 USR2 ABRT KILL)'
        '--kill-after=[from that signal to SIGKILL]:duration: '
    )
    local -a kind=(
        '--kind=[the kind of lock]:kind:(mutex fair read write semaphore)'
        '--permits=[permits of a semaphore]:number: '
    )
    local -a wait=(
        '(-n --try -w --wait)'{-n,--try}'[do not wait for the lock]'
        '(-n --try -w --wait)'{-w,--wait=}'[how long to wait for the lock]:duration: '
    )
    local -a busy=('--busy-status=[the exit status if others hold the lock]:number (124): ')
    local -a json=('--json[one object a line]')
    local first=
    if ((CURRENT > 2)) && [[ $words[2] == (elect|acquire|renew|release|inspect|force-release|ls|top) ]]; then
        first=$words[2]
        shift words
        ((CURRENT--))
    elif ((CURRENT == 2)) && [[ $words[2] != -* ]]; then
        _describe 'subcommand, or a key' subcommands
        return
    fi
    case $first in
        '') _arguments -s -S $every $wait $kind $lease $held $lock $busy '--at-least=[from the grant until others get it]:duration: ' \
                '1:key: ' '(-)*:::command:_normal' ;;
        elect)
            _arguments -s -S $every $kind $lease $held $lock '--grace=[from SIGTERM to SIGKILL when rlock is to end]:duration (10s): ' \
                '--give-up=[after so many failures in a row]:number: ' \
                '--on-lead=[run by sh before the command, when this one leads]:command: ' \
                '--on-lost=[run by sh when the command has ended with the lead]:command: ' \
                '--state-file=[where to write whether it leads]:file:_files' \
                '1:key: ' '(-)*:::command:_normal'
            ;;
        acquire) _arguments -s -S $every $wait $kind $lease $held $busy $json '1:key: ' ;;
        renew) _arguments -s -S $every $kind $lease $held $json '1:key: ' '2:token: ' ;;
        release) _arguments -s -S $every $kind $held '1:key: ' '2:token: ' ;;
        inspect | force-release) _arguments -s -S $every $wait $kind $json '1:key: ' ;;
        *) _arguments -s -S $every $wait $json '1:pattern: ' ;;
    esac
}

_rlock "$@"
