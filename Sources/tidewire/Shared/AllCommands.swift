import Console

/// What `tidewire` can do, in the order in which its help lists it.
let allCommands: [any Command] = [
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
    BundleCommand(),
    OpenCommand(),
    WhyCommand(),
    WhatIfCommand(),
    ReplayCommand(),
    DoctorCommand(),
    DatabaseCommand(),
    SlotCommand(),
    ConfigCommand(),
    BenchCommand(),
    CompletionsCommand(),
    VersionCommand(),
]
