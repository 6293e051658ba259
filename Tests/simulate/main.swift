import Glibc
import Simulator

exit(Command.run(Array(CommandLine.arguments.dropFirst())))
