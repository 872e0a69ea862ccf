# Completion of `nerf` for fish: nerf completion fish | source
function __nerf_words
    set --local before (commandline --tokenize --cut-at-cursor --current-process)
    set --local word (commandline --cut-at-cursor --current-token)
    set --local plain (string unescape -- $word); or set plain $word
    $before[1] completion fish --words $before[2..] "$plain" 2>/dev/null
end
complete --command nerf --no-files --arguments '(__nerf_words)'
