
# PowerShell completion for kubectl: words and descriptions come from `kubectl __complete`.

Register-ArgumentCompleter -Native -CommandName 'kubectl' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $words = @($commandAst.CommandElements | Where-Object { $_.Extent.EndOffset -lt $cursorPosition } | ForEach-Object { $_.Extent.Text })
    $program = $words[0]
    $arguments = @('__complete') + @($words | Select-Object -Skip 1)
    # An empty last argument would be dropped.
    $last = if ($wordToComplete -eq '') { '""' } else { $wordToComplete }
    $output = @(& $program @arguments $last 2>$null)
    if ($output.Count -eq 0) { return }

    $directive = 0
    [void][int]::TryParse($output[-1].TrimStart(':'), [ref]$directive)
    if ($directive -band 1) { return }
    $prefix = ''
    if ($wordToComplete -match '^(-[^=]*=)') { $prefix = $Matches[1] }
    $space = if ($directive -band 2) { '' } else { ' ' }

    $output | Select-Object -SkipLast 1 | ForEach-Object {
        $word, $description = $_ -split "`t", 2
        if (-not $description) { $description = $word }
        [System.Management.Automation.CompletionResult]::new("$prefix$word$space", $word, 'ParameterValue', $description)
    }
}
