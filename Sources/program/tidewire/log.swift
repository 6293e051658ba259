import Console

/// Command `tidewire log`.
struct LogCommand: Command {
    let name = "log"
    let summary = "Look at the event log's files: info, verify, export, import, audit, forget and more."
    let discussion = """
        The event log is a directory of segment files, written by the hub alone. These commands work on it with or \
        without a running hub; only repair, accept-loss, forget and import \
        write it, and none of them beside a running hub.
        """
    let subcommands: [any Command] = [
        LogInfoCommand(), LogVerifyCommand(), LogAcceptLossCommand(), LogExportCommand(), LogImportCommand(),
        LogForgetCommand(), LogAuditCommand(),
    ]
}
