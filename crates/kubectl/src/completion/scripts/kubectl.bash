
# bash completion for kubectl: words and descriptions come from `kubectl __complete`.

__kubectl_complete() {
    local cur words line directive word description
    COMPREPLY=()
    # Words with colons and equals signs are whole words for kubectl.
    local typed="${COMP_LINE:0:COMP_POINT}"
    read -r -a words <<<"$typed"
    cur=""
    if [[ "$typed" != *[[:space:]] ]]; then
        cur="${words[${#words[@]}-1]}"
        unset "words[${#words[@]}-1]"
    fi
    local -a values=() descriptions=() arguments=("${words[@]:1}" "$cur")
    directive=0
    while IFS= read -r line; do
        if [[ "$line" =~ ^:[0-9]+$ ]]; then
            directive="${line:1}"
            continue
        fi
        word="${line%%$'\t'*}"
        description=""
        [[ "$line" == *$'\t'* ]] && description="${line#*$'\t'}"
        values+=("$word")
        descriptions+=("$description")
    done < <("${words[0]}" __complete "${arguments[@]}" 2>/dev/null)

    if ((directive & 1)); then
        return
    fi
    if ((directive & 2)) && [[ $(type -t compopt) == builtin ]]; then
        compopt -o nospace
    fi
    if ((directive & 8)); then
        local pattern
        for word in "${values[@]}"; do
            pattern+="${pattern:+|}$word"
        done
        shopt -q extglob || shopt -s extglob
        mapfile -t COMPREPLY < <(compgen -d -- "$cur"; compgen -f -X "!*.@($pattern)" -- "$cur")
        [[ $(type -t compopt) == builtin ]] && compopt -o filenames
        return
    fi
    # After an equals sign or a colon, bash only replaces what follows it.
    local value="$cur" cut=""
    [[ "$value" == -*=* ]] && value="${value#*=}"
    if [[ "$COMP_WORDBREAKS" == *:* && "$value" == *:* ]]; then
        cut="${value%"${value##*:}"}"
    fi
    local index width=0
    for index in "${!values[@]}"; do
        if [[ "${values[$index]}" == "$value"* ]]; then
            COMPREPLY+=("$index")
            ((${#values[$index]} > width)) && width=${#values[$index]}
        fi
    done
    local -a chosen=("${COMPREPLY[@]}")
    COMPREPLY=()
    for index in "${chosen[@]}"; do
        if ((${#chosen[@]} > 1)) && [[ -n "${descriptions[$index]}" && ${COMP_TYPE:-9} != 37 ]]; then
            local shown
            printf -v shown "%-${width}s  (%s)" "${values[$index]}" "${descriptions[$index]}"
            COMPREPLY+=("${shown:0:${COLUMNS:-80}}")
        else
            COMPREPLY+=("${values[$index]#"$cut"}")
        fi
    done
    if ((${#COMPREPLY[@]} == 0)) && ((!(directive & 4))); then
        mapfile -t COMPREPLY < <(compgen -f -- "$value")
        [[ $(type -t compopt) == builtin ]] && compopt -o filenames
    fi
}

if [[ $(type -t compopt) == builtin ]]; then
    complete -o default -F __kubectl_complete kubectl
else
    complete -o default -o nospace -F __kubectl_complete kubectl
fi
