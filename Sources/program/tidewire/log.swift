import Console

/// Command `tidewire log`: the group of commands about the event log as a whole.
struct LogCommand: Command {
    let name = "log"
    let summary =
        "Inspect, check, copy and repair the event log's files: info, verify, export, import, audit, forget and more."
    let discussion = """
        The event log is a directory of segment files, which only the hub writes. These commands work with or without \
        a running hub. Only log verify --repair, accept-loss, forget and import write to the log. They need the hub to \
        be stopped, except that 'tidewire log forget --server' asks a running hub.
        """
    let subcommands: [any Command] = [
        LogInfoCommand(), LogVerifyCommand(), LogAcceptLossCommand(), LogExportCommand(), LogImportCommand(),
        LogForgetCommand(), LogAuditCommand(), LogAskCommand(),
    ]
}
