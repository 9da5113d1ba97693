#compdef kubectl
compdef _kubectl kubectl

# zsh completion for kubectl: words and descriptions come from `kubectl __complete`.

_kubectl() {
    local line directive=0 cur="${words[CURRENT]}" value
    local -a completions extensions arguments options
    arguments=("${(@)words[2,CURRENT-1]}" "$cur")
    while IFS= read -r line; do
        if [[ "$line" == :<-> ]]; then
            directive=${line#:}
        elif [[ -n "$line" ]]; then
            extensions+=("${line%%$'\t'*}")
            value=${${line%%$'\t'*}//:/\\:}
            [[ "$line" == *$'\t'* ]] && value+=":${line#*$'\t'}"
            completions+=("$value")
        fi
    done < <("${(Q)words[1]}" __complete "${(@Q)arguments}" 2>/dev/null)

    (( directive & 1 )) && return 1
    (( directive & 2 )) && options=(-S '')
    # The value after --flag= is completed on its own.
    [[ "$cur" == -*=* ]] && compset -P '*='
    if (( directive & 8 )); then
        _files -g "*.(${(j:|:)extensions})"
        return
    fi
    if (( ${#completions} )); then
        _describe -V 'kubectl' completions "${options[@]}" && return 0
    fi
    (( directive & 4 )) || _files
}

# The file may be sourced or found through fpath.
if [[ "${funcstack[1]}" == "_kubectl" ]]; then
    _kubectl "$@"
fi
