#compdef nerf
# Completion of `nerf` for zsh: source <(nerf completion zsh), after compinit; or a file _nerf in a folder of $fpath.
_nerf() {
  local line word
  local -a whole open
  for line in "${(@f)$(${~words[1]} completion zsh --words "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2> /dev/null)}"; do
    word=${line%%$'\t'*}
    [[ -n $word ]] || continue
    # _describe splits at the first colon that has no backslash
    line=${word//:/\\:}:${line#*$'\t'}
    if [[ $word == *[=/.] ]]; then open+=("$line"); else whole+=("$line"); fi
  done
  # Behind a name comes its value, behind a folder what lies in it: no space.
  _describe nerf whole -- open -S ''
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _nerf "$@"
else
  compdef _nerf nerf
fi
