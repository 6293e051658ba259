import Console
import Glibc
import System

// Without SIGPIPE, a closed pipe becomes an error of write(2), which ends the command quietly.
_ = signal(SIGPIPE, SIG_IGN)

let words = OwnProgram.words

exit(await Program(commands: allCommands).run(words, Terminal.ofThisProcess()).rawValue)
