
# fish completion for kubectl: words and descriptions come from `kubectl __complete`.

function __kubectl_complete
    set -l tokens (commandline -opc)
    set -l current (commandline -ct)
    set -l results ($tokens[1] __complete $tokens[2..-1] "$current" 2>/dev/null)
    set -l directive (string replace ':' '' -- $results[-1])
    if not string match -qr '^[0-9]+$' -- "$directive"
        return 1
    end
    # A value after --flag= is offered with the flag before it.
    set -l prefix (string match -r -- '^-.*=' "$current")
    for line in $results[1..-2]
        printf '%s%s\n' "$prefix" "$line"
    end
    if test (count $results) -le 1; and test (math "floor($directive / 4) % 2") -eq 0
        __fish_complete_path "$current"
    end
end

complete -c kubectl -e
complete -c kubectl -f -a '(__kubectl_complete)'
