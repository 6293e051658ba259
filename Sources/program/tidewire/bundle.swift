import Bytes
import Change
import Console
import EventLog
import History
import Settings
import System

/// Command `tidewire bundle`.
struct BundleCommand: Command {
    let name = "bundle"
    let summary = "Put a window of the log into one file that opens anywhere."
    let discussion = """
        For somebody else to look at: a window of the event log with its schemas and its ledger (who was joined when it begins, \
        too), and the settings of this hub, in one file. All commands that read a log take it with --log; they need neither a hub \
        nor a database nor anything else of this machine. 'tidewire open' says what is in it.

        It is masked like all output, for good: nobody can unmask it later. --unmask leaves columns readable in it, and is \
        written down here. Passwords, secrets and tokens of the settings are never in it. What the log has \
        of the catalog (policies, grants, functions that policies call) is in it with --policies only, as it is written: its texts \
        may hold what is to be hidden. With it 'who' and 'why' decide again as it was then, but for policies that read masked \
        columns or claims; without it they say what is recorded, or ask a database.

        The file is an archive as tar reads it: 'tar tf FILE' lists it.

        \(SelectorHelp.text)
        """
    let operands = [Operand("FILE", .one, "Where to: a name that is free, such as incident.bundle.")]
    let options: [Option] =
        [.from, .to, .note, .policies, .withoutProgress, .zone, .log, .project] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [.configuration]
    let examples = [
        Example(
            "tidewire bundle incident.bundle --from -1h --note 'orders vanish'", "The last hour, for somebody else:"),
        Example("tidewire tail --log incident.bundle --from oldest", "And there:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("bundle", options: allOptions, terminal) { return code }
        let query = try arguments.query(try arguments.zone())
        let path = arguments.operands[0]
        guard !path.isEmpty, !path.hasSuffix("/") else { throw UsageError("FILE \(path): expected the name of a file") }
        let configuration = try arguments.configuration(terminal)
        return try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            _ = try NameCheck(log)
            let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress))
            defer { progress.clear() }
            do {
                var maker = try BundleMaker(
                    log, from: query.from, to: query.to, path: path, includesPolicies: arguments.has(.policies))
                let offsets = maker.offsets
                var held: [SegmentSummary] = []
                try maker.run { segments in
                    held = segments
                    return description(segments, log, configuration, arguments, terminal)
                } noting: { offset in
                    let done = Progress.percent(offset - min(offset, offsets.lowerBound), of: UInt64(offsets.count))
                    progress.note("bundled \(done), up to @\(offset)")
                }
                progress.clear()
                let changes = held.reduce(0) { $0 + $1.changes }
                try terminal.print(
                    "\(path): \(changes == 1 ? "1 change" : "\(changes) changes"); 'tidewire open \(path)' says more")
            } catch let error as BundleError {
                throw CommandFailure(.notFound, "\(error)")
            } catch let error as SystemError {
                throw CommandFailure(.notFound, "the bundle cannot be made: \(error)")
            }
            return .ok
        }
    }

    private func description(
        _ segments: [SegmentSummary], _ log: HistoryLog, _ configuration: Configuration, _ arguments: Arguments,
        _ terminal: Terminal
    ) -> [(name: String, bytes: [UInt8])] {
        var manifest = JSONLine()
        manifest.add("format", "tidewire-bundle")
        manifest.add("version", 1)
        manifest.add("made", TimeText.json(Clock.unixMicroseconds()))
        manifest.add("by", "\(Product.name) \(Product.version)")
        manifest.add("note", arguments.value(of: .note))
        manifest.add("first_offset", segments.first?.firstOffset ?? 0)
        manifest.add("end_offset", segments.last?.endOffset ?? 0)
        manifest.add("system_identifier", segments.last.map { String($0.header.source) })
        manifest.add("unmasked", log.masking.shown.map(\.description).joined(separator: ", "))
        manifest.add("policies", arguments.has(.policies))
        manifest.add("also_masked", log.masking.hidden.map(\.description).joined(separator: ", "))
        let settings = configuration.effective.map { $0.bundled + "\n" }.joined()
        let rules = configuration.maskRules.flatMap { path in
            if case .bytes(let bytes) = terminal.surroundings.readFile(path) { bytes } else { nil }
        }
        return [
            (LogBundle.manifestName, Array((manifest.text + "\n").utf8)),
            (LogBundle.configurationName, Array(settings.utf8)),
            (LogBundle.rulesName, Array((MaskRules.usualText + "\n").utf8) + (rules ?? [])),
        ]
    }
}

extension Option {
    fileprivate static let policies = Option.flag(
        "policies", "What the log has of policies, grants and functions goes along, as it is written.")
    fileprivate static let note = Option.value("note", "TEXT", "What it is about, for who opens it.")
}

extension Configuration.Effective {
    /// Setting as `tidewire config --json` prints it, without its explanations. Secrets are hidden there too.
    /// too.
    fileprivate var bundled: String {
        var line = JSONLine()
        line.add("name", setting.name)
        line.add("value", shown.isEmpty ? nil : shown)
        line.add("default", isDefault)
        return line.text
    }
}
