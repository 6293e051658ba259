import Bytes
import Change
import Console
import EventLog
import Foundation
import History
import Pages
import Settings
import System

/// Command `tidewire bundle`: writes a window of the log with its ledger and the settings into one masked file.
struct BundleCommand: Command {
    let name = "bundle"
    let summary = "Write a window of the log into one file that can be read on any machine."
    let discussion = """
        Writes one file for somebody else to look at. It contains a window of the event log with its schemas and its \
        ledger (including who was joined when the window begins), and the settings of this hub. All commands that read \
        a log read the bundle with --log. They need no hub, no database and nothing else of this machine. 'tidewire \
        open' shows what a bundle contains.

        A bundle is masked like all output, but for good: nobody can unmask it later. --unmask leaves a column \
        readable in the bundle, and the audit file of this log records that. The bundle carries the mask rules that it \
        was made with: whoever reads it sees such a column only with --unmask too. A bundle never contains passwords, \
        secrets and tokens of the settings. Only with --policies does it contain the log's record of the catalog \
        (policies, grants, functions that policies call), as it is written: these texts may contain what you want to \
        hide. With the record, 'who' and 'why' evaluate policies as they were at each change, except policies that \
        read masked columns or claims. Without it, they show only what is recorded, or ask a database.

        With --html the file is a report instead: one HTML file with the pages of the web console (docs/console.md) and \
        the answers to their questions. It opens in a browser with a double click, and loads nothing from a network. \
        Like a bundle it is masked for good. It answers who was told of the newest 500 changes; say --policies, so \
        that it can say why.

        The file of a bundle is a tar archive of files compressed with zstd: 'tar tf FILE' lists it.

        \(SelectorHelp.text)
        """
    let operands = [Operand("FILE", .one, "The new file: an unused name, such as incident.bundle.")]
    let options: [Option] =
        [.from, .to, .note, .policies, .html, .withoutProgress, .zone, .log, .project] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [.configuration]
    let examples = [
        Example(
            "tidewire bundle incident.bundle --from -1h --note 'orders vanish'", "The last hour, for a colleague:"),
        Example("tidewire tail --log incident.bundle --from oldest", "The colleague reads it:"),
        Example("tidewire bundle --html report.html --from -1h --policies", "A report that opens in a browser:"),
        Example(
            "tidewire bundle --html report.html --log incident.bundle --from oldest --policies", "The same of a bundle:"
        ),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) async throws -> ExitCode {
        let path = arguments.operands[0]
        guard !path.isEmpty, !path.hasSuffix("/") else { throw UsageError("FILE \(path): expected the name of a file") }
        if arguments.has(.html) { return try await report(path, arguments, terminal) }
        if let code = try arguments.answer("bundle", options: allOptions, terminal) { return code }
        return try make(path, arguments, terminal)
    }

    /// Writes a report: a bundle, whose questions are asked right away, and which is then removed.
    private func report(_ path: String, _ arguments: Arguments, _ terminal: Terminal) async throws -> ExitCode {
        guard arguments.value(of: .server) == nil else {
            throw UsageError(
                "--html makes the report on this machine: fetch a bundle with --server, and then name it with --log")
        }
        let file = try NewFile(path)
        let directory = try DiskDirectory(Directories.parent(of: Directories.absolute(path)))
        let name = ".report-\(ProcessInfo.processInfo.processIdentifier)-\(Clock.monotonicNanoseconds()).bundle"
        let bundle = directory.path + "/" + name
        defer { try? directory.remove(name) }
        let quiet = Terminal(
            width: nil, surroundings: terminal.surroundings, output: { _ in },
            errors: { terminal.complain(part: String(decoding: $0, as: UTF8.self)) })
        let code = try make(bundle, arguments, quiet)
        guard code == .ok else { return code }
        let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress))
        defer { progress.clear() }
        let data = try await ReportData(
            bundle: bundle, note: arguments.value(of: .note),
            made:
                "Made \(TimeText.json(Clock.unixMicroseconds())) by \(Product.name) \(Product.version), with masked values.",
            terminal: terminal, progress: progress
        ).json()
        try file.write(ReportPage.html(data))
        try file.keep()
        progress.clear()
        try terminal.print("\(path): open it in a browser; it needs no network")
        return .ok
    }

    private func make(_ path: String, _ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let query = try arguments.query(try arguments.zone())
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
                    return description(segments, log, configuration, arguments)
                } noting: { offset in
                    let done = Progress.percent(offset - min(offset, offsets.lowerBound), of: UInt64(offsets.count))
                    progress.note("bundled \(done), up to @\(offset)")
                }
                progress.clear()
                let changes = held.reduce(0) { $0 + $1.changes }
                try terminal.print(
                    "\(path): \(changes == 1 ? "1 change" : "\(changes) changes"); 'tidewire open \(path)' shows what it contains"
                )
            } catch let error as BundleError {
                throw CommandFailure(
                    .notFound, "\(error)", hint: "Choose another window with --from and --to, or another FILE.")
            } catch let error as SystemError {
                throw CommandFailure(.notFound, "the bundle cannot be made: \(error)", hint: error.advice)
            }
            return .ok
        }
    }

    private func description(
        _ segments: [SegmentSummary], _ log: HistoryLog, _ configuration: Configuration, _ arguments: Arguments
    ) -> [(name: String, bytes: [UInt8])] {
        var manifest = JSONLine()
        manifest.add("format", "tidewire-bundle")
        manifest.add("version", LogBundle.version)
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
        let rules = "\(MaskRules.usualText)\n\(log.masking.rules.text)"
        return [
            (LogBundle.manifestName, Array((manifest.text + "\n").utf8)),
            (LogBundle.configurationName, Array(settings.utf8)),
            (MaskRulesFile.name, MaskRulesFile.contents(of: Array(rules.utf8))),
        ]
    }
}

extension Option {
    fileprivate static let policies = Option.flag(
        "policies", "Include the log's record of policies, grants and functions, as it is written.")
    fileprivate static let html = Option.flag("html", "Write a report for a browser, in one file, instead of a bundle.")
    fileprivate static let note = Option.value("note", "TEXT", "What the bundle is about; 'tidewire open' shows it.")
}

extension Configuration.Effective {
    /// JSON of a setting for the bundle: its name, value and whether it is the default. Secrets are hidden, as in
    /// `tidewire config`.
    fileprivate var bundled: String {
        var line = JSONLine()
        line.add("name", setting.name)
        line.add("value", shown.isEmpty ? nil : shown)
        line.add("default", isDefault)
        return line.text
    }
}
