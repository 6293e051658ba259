import Bytes
import Console
import EventLog
import History
import Server
import System

/// Command `tidewire open`: shows the contents of a bundle.
struct OpenCommand: Command {
    let name = "open"
    let summary = "Show what a bundle contains, and verify it."
    let discussion = """
        'tidewire bundle' makes bundles, here or on another machine. All commands that read a log can read a bundle: \
        name it with --log. This command verifies every checksum of the log in the bundle, and shows what the bundle \
        contains, and when and why it was made. With --settings it also shows how the hub was configured.

        With --web it also serves the web console (docs/console.md) about this bundle to browsers of this machine, \
        until Ctrl-C. It needs no hub and no database.

        JSON. The manifest: format, version, made, by, note, first_offset, end_offset, system_identifier, unmasked, \
        policies, also_masked; with --settings then one object a setting: name, value, default.
        """
    let operands = [Operand("FILE", .one, "The bundle.")]
    let options: [Option] = [.bundledSettings, .web, .port, .json]
    let examples = [
        Example("tidewire open incident.bundle", "What does this bundle contain?"),
        Example("tidewire open incident.bundle --web", "Look at it in a browser:"),
        Example("tidewire row orders 4711 --log incident.bundle", "What happened to order 4711?"),
    ]
    let exitCodes: [ExitCode] = [.unreachable, .damaged]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let path = arguments.operands[0]
        guard Directories.isThere(path), !Directories.isDirectory(path) else {
            throw CommandFailure(
                .unreachable, "there is no bundle \(path)", hint: "'tidewire bundle FILE' makes one from a log.")
        }
        return try LogAccess.explained {
            let bundle = try LogAccess.bundle(path)
            let reports = try LogAccess.verified(bundle.directory, Progress(terminal, isQuiet: arguments.has(.json)))
            let damage = reports.flatMap { report in report.problems.map { "\(report.path): \($0.words)" } }
            for line in damage { terminal.complain(line) }
            if arguments.has(.json) {
                try terminal.print(text(bundle, LogBundle.manifestName))
            } else {
                try describe(bundle, path, reports.compactMap(\.summary), terminal)
            }
            if arguments.has(.bundledSettings) { try terminal.print(text(bundle, LogBundle.configurationName)) }
            if arguments.has(.web) { try serve(path, try port(arguments), terminal) }
            return damage.isEmpty ? .ok : .damaged
        }
    }

    private func port(_ arguments: Arguments) throws(UsageError) -> UInt16 {
        guard let text = arguments.value(of: .port) else { return 0 }
        guard arguments.has(.web), let port = UInt16(text) else {
            throw UsageError("--port \(text): expected the number of a port, together with --web")
        }
        return port
    }

    /// Serves the console until a signal ends the command.
    private func serve(_ path: String, _ port: UInt16, _ terminal: Terminal) throws {
        Hub.blockSignals()
        let name = path.split(separator: "/").last.map(String.init) ?? path
        let server = try ServeCommand.explained {
            try LogFileServer(try Directories.absolute(path), name: name, port: port)
        }
        defer { server.stop() }
        try terminal.print("The console of this bundle: http://127.0.0.1:\(server.port)/console/ (Ctrl-C ends it)")
        try terminal.flush()
        while Hub.waitForSignal() == nil {}
    }

    private func text(_ bundle: LogBundle, _ name: String) throws -> String {
        let text = String(decoding: try bundle.contents(of: name) ?? [], as: UTF8.self)
        return text.hasSuffix("\n") ? String(text.dropLast()) : text
    }

    private func describe(
        _ bundle: LogBundle, _ path: String, _ segments: [SegmentSummary], _ terminal: Terminal
    ) throws {
        let members = BundleManifest(try bundle.contents(of: LogBundle.manifestName) ?? [])
        let note = members["note"].map { ": \($0)" } ?? ""
        try terminal.print(
            ScreenText.escaped("\(path), made \(members["made"] ?? "-") by \(members["by"] ?? "-")\(note)"))
        let filled = segments.filter { !$0.isEmpty }
        let zone = DisplayZone.utc
        let (first, end) = (segments.first?.firstOffset ?? 0, segments.last?.endOffset ?? 0)
        try terminal.print(
            "\(end - first) changes, @\(first) … @\(end), from \(zone.text(filled.map(\.begin).min())) to "
                + "\(zone.text(filled.map(\.maximumTime).max())) UTC; every checksum was verified")
        let unmasked = members["unmasked"] ?? ""
        try terminal.print(
            ScreenText.escaped(
                unmasked.isEmpty
                    ? "values are masked by the rules in \(MaskRulesFile.name)"
                    : "values are masked by the rules in \(MaskRulesFile.name), but not \(unmasked)"))
        try terminal.print("Read it with --log: tidewire tail --log \(path) --from oldest")
    }
}

extension Option {
    fileprivate static let web = Option.flag("web", "Serve the web console about the bundle, until Ctrl-C.")
    fileprivate static let port = Option.value("port", "PORT", "The port for --web; default is any free one.")
    fileprivate static let bundledSettings = Option.flag(
        "settings", "Also show the settings of the hub that it comes from.")
}
