import Console
import Glibc
import System

// With the signal ignored, write(2) fails if the reader of the output ends. The command then ends without a message.
_ = signal(SIGPIPE, SIG_IGN)

/// Words of the command line after `tidewire`. `tidewire bench` starts this program, so its manuals and errors name
/// that command.
let words = ["bench"] + OwnProgram.words

exit(await Program(commands: [BenchCommand()]).run(words, Terminal.ofThisProcess()).rawValue)
