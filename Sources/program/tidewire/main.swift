import Console
import Glibc
import System

// A reader that goes away is then an error of write(2), which ends a command quietly, instead of a signal.
_ = signal(SIGPIPE, SIG_IGN)

let words = OwnProgram.words

exit(await Program(commands: allCommands).run(words, Terminal.ofThisProcess()).rawValue)
