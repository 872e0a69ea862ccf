# Completion of `nerf` for bash: source <(nerf completion bash)
_nerf() {
  local word
  COMPREPLY=()
  while IFS= read -r word; do
    [[ -n $word ]] && COMPREPLY+=("$word")
  done < <("${1/#\~/$HOME}" completion bash --words "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2> /dev/null)
  # Behind a name comes its value, behind a folder what lies in it: no space. (bash 3 has no compopt.)
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/.] ]]; then
    compopt -o nospace 2> /dev/null
  fi
}
complete -F _nerf nerf
