import Console
import Glibc
import System

// A reader that goes away is then an error of write(2), which ends a command quietly, instead of a signal.
_ = signal(SIGPIPE, SIG_IGN)

/// `tidewire bench` starts this program with the words that follow, so its manuals and complaints speak of that.
let words = ["bench"] + OwnProgram.words

exit(await Program(commands: [BenchCommand()]).run(words, Terminal.ofThisProcess()).rawValue)
