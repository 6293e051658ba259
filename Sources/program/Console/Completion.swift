/// Candidates for the last word of a command line, for completion in shells. The shells' scripts call `tidewire
/// --complete WORD...`, so they need no lists of commands and options.
public enum Completion {
    public enum Answer: Equatable {
        /// Line for each candidate: the word, a tab, its meaning. A line `:files` or `:directories` makes the shell
        /// complete paths itself.
        case lines([String])
        /// Another program knows the candidates. The caller starts it with these words.
        case other(program: String, words: [String])
    }

    /// Returns the candidates for the last of `words`, which may be empty. `words` are the words after the program's
    /// name. `isWhole` is false if `commands` are the subcommands of another command.
    public static func answer(_ words: [String], among commands: [any Command], isWhole: Bool = true) -> Answer {
        var words = withoutEqualSigns(words)
        let isHelp = isWhole && words.first == "help" && words.count > 1
        if isHelp { words.removeFirst() }
        let typed = words.popLast() ?? ""
        var known = commands
        var found: (any Command)?
        for (index, word) in words.enumerated() where !known.isEmpty {
            guard let next = known.first(where: { $0.name == word }) else { return .lines([]) }
            if let other = next.otherProgram { return .other(program: other, words: words[(index + 1)...] + [typed]) }
            found = next
            known = next.subcommands
        }
        if !known.isEmpty && !typed.hasPrefix("-") {
            let help = found == nil && isWhole && !isHelp ? [("help", "Show a command's manual.")] : []
            return .lines(fitting(known.map { ($0.name, $0.summary) } + help, typed))
        }
        guard let found, !isHelp else { return .lines([]) }
        return .lines(lines(found, given: words, typed: typed))
    }

    private static func lines(_ command: any Command, given: [String], typed: String) -> [String] {
        let options = command.allOptions
        if let previous = given.last, let option = options.first(where: { $0.isSpelled(previous) }),
            let value = option.valueName
        {
            return values(value, typed)
        }
        if typed.hasPrefix("-") {
            let parts = typed.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            if parts.count == 2, let value = options.first(where: { $0.isSpelled(parts[0]) })?.valueName {
                return values(value, parts[1]).map { $0.hasPrefix(":") ? $0 : "\(parts[0])=\($0)" }
            }
            let open = options.filter { option in option.isRepeatable || !given.contains { option.isSpelled($0) } }
            return fitting(open.map { ("--" + $0.name, $0.help) }, typed)
        }
        return command.operands.flatMap { values($0.name, typed) }
    }

    /// Returns the candidates for a value, from its placeholder in the manual. A placeholder such as `on|off` lists the
    /// candidates. For FILE and DIR the shell completes paths. Other values have no candidates.
    private static func values(_ placeholder: String, _ typed: String) -> [String] {
        let parts = placeholder.split(separator: "|").map(String.init)
        if parts.contains("FILE") { return [":files\t"] }
        if parts.contains("DIR") { return [":directories\t"] }
        guard parts.count > 1, parts.allSatisfy({ $0.first?.isLowercase == true }) else { return [] }
        return fitting(parts.map { ($0, "") }, typed)
    }

    private static func fitting(_ candidates: [(word: String, meaning: String)], _ typed: String) -> [String] {
        candidates.filter { $0.word.hasPrefix(typed) }.map { "\($0.word)\t\(firstSentence($0.meaning))" }
    }

    private static func firstSentence(_ text: String) -> String {
        let line = text.split(separator: "\n").first.map(String.init) ?? ""
        return line.firstRange(of: ". ").map { String(line[..<$0.lowerBound]) + "." } ?? line
    }

    /// Returns the words without equal signs, because bash splits `--name=value` into three words.
    private static func withoutEqualSigns(_ words: [String]) -> [String] {
        words.filter { $0 != "=" } + (words.last == "=" ? [""] : [])
    }
}

extension Option {
    fileprivate func isSpelled(_ word: String) -> Bool {
        word == "--" + name || (short.map { word == "-\($0)" } ?? false)
    }
}

/// Shells that have a completion script.
public enum Shell: String, CaseIterable, Sendable {
    case bash, zsh, fish

    /// Script that makes the shell call this program for candidates.
    public var completionScript: String {
        switch self {
        case .bash:
            #"""
            # Completes `tidewire` in bash; made by `tidewire completions bash`. The program itself knows what may follow.
            _tidewire() {
                local current=${COMP_WORDS[COMP_CWORD]} word
                [[ $current == "=" ]] && current=
                COMPREPLY=()
                while IFS=$'\t' read -r word _; do
                    case $word in
                    :files)
                        compopt -o filenames
                        mapfile -t COMPREPLY < <(compgen -f -- "$current")
                        ;;
                    :directories)
                        compopt -o filenames
                        mapfile -t COMPREPLY < <(compgen -d -- "$current")
                        ;;
                    *) COMPREPLY+=("$word") ;;
                    esac
                done < <("${COMP_WORDS[0]}" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
            }
            complete -F _tidewire tidewire

            """#
        case .zsh:
            #"""
            #compdef tidewire
            # Completes `tidewire` in zsh; made by `tidewire completions zsh`. The program itself knows what may follow.
            _tidewire() {
                local line word
                local -a found
                for line in "${(@f)$("${words[1]}" --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
                    word=${line%%$'\t'*}
                    case $word in
                    '') ;;
                    :files) _files ;;
                    :directories) _files -/ ;;
                    *) found+=("${word//:/\\:}:${line#*$'\t'}") ;;
                    esac
                done
                (( $#found )) && _describe -t tidewire tidewire found
            }
            if [[ $funcstack[1] == _tidewire ]]; then
                _tidewire "$@"
            else
                compdef _tidewire tidewire
            fi

            """#
        case .fish:
            #"""
            # Completes `tidewire` in fish; made by `tidewire completions fish`. The program itself knows what may follow.
            function __tidewire_complete
                set -l words (commandline -opc)
                set -l current (commandline -ct)
                set -l program $words[1]
                set -e words[1]
                for line in ($program --complete $words "$current" 2>/dev/null)
                    switch $line
                        case ':files*'
                            __fish_complete_path "$current"
                        case ':directories*'
                            __fish_complete_directories "$current"
                        case '*'
                            echo $line
                    end
                end
            end
            complete -c tidewire -f -a '(__tidewire_complete)'

            """#
        }
    }
}
