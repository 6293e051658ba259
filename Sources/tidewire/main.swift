import Console
import Glibc

// A reader that goes away is then an error of write(2), which ends a command quietly, instead of a signal.
_ = signal(SIGPIPE, SIG_IGN)

let words = Array(CommandLine.arguments.dropFirst())

exit(await Program(commands: allCommands).run(words, Terminal.ofThisProcess()).rawValue)
