import Console
import Glibc
import System

// If a reader goes away, write(2) then fails and the command ends quietly, without a signal.
_ = signal(SIGPIPE, SIG_IGN)

/// Words of the command line after `tidewire`. `tidewire bench` starts this program, so manuals and errors name that
/// command.
let words = ["bench"] + OwnProgram.words

exit(await Program(commands: [BenchCommand()]).run(words, Terminal.ofThisProcess()).rawValue)
