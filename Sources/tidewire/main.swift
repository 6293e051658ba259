import Console
import Glibc

// A reader that goes away is then an error of write(2), which ends a command quietly, instead of a signal.
_ = signal(SIGPIPE, SIG_IGN)

let program = Program(commands: [
    ServeCommand(),
    DevCommand(),
    TailCommand(),
    RowCommand(),
    TransactionCommand(),
    AsOfCommand(),
    StatisticsCommand(),
    EventCommand(),
    WhoCommand(),
    UserCommand(),
    SessionCommand(),
    LogCommand(),
    WhyCommand(),
    WhatIfCommand(),
    DoctorCommand(),
    DatabaseCommand(),
    SlotCommand(),
    ConfigCommand(),
    BenchCommand(),
    VersionCommand(),
])

exit(await program.run(Array(CommandLine.arguments.dropFirst()), Terminal.ofThisProcess()).rawValue)
