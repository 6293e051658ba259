import Bench
import Console
import Settings

/// Command `tidewire bench soak`.
struct SoakCommand: Command {
    let name = "soak"
    let summary =
        "Run five apps of the Swift client with everything going wrong, and hold what they show against the database."
    let discussion = """
        Starts a private PostgreSQL, a hub, a proxy that loses, delays and cuts, and five apps with so many users each: \
        expenses on two devices of a person, a map with a chat, a social feed, listings of an office, friendships. Their users \
        write, through queues that wait for the network, and others do past them.

        Meanwhile, every few seconds: sockets are cut, held, slowed and lose what is on them; the hub is killed, stopped and \
        started; its slot is dropped; apps go to the background, lose the network, are killed and launched again; their APIs \
        are away; tokens end.

        In the end everything is mended, and each app has to show what its person may SELECT: a row that is missing, that is \
        not there any more or is another version, a message or a toast that came twice ends with exit code 1.
        """
    let options: [Option] = [.json, .soakSeed, .soakSeconds, .soakUsers, .soakDirectory]
    var examples: [Example] {
        [Example("tidewire bench soak --seed 7 --seconds 3600", "An hour of it:")]
    }

    func run(_ arguments: Arguments, _ terminal: Terminal) async throws -> ExitCode {
        var settings = SoakSettings()
        if case .integer(let seed)? = try arguments.value(of: .soakSeed, as: .integer(0...Int64.max)) {
            settings.seed = UInt64(seed)
        }
        if case .integer(let seconds)? = try arguments.value(of: .soakSeconds, as: .integer(1...1_000_000)) {
            settings.seconds = Int(seconds)
        }
        if case .integer(let users)? = try arguments.value(of: .soakUsers, as: .integer(2...500)) {
            settings.users = Int(users)
        }
        settings.directory = arguments.value(of: .soakDirectory) ?? settings.directory
        if terminal.isInteractive { settings.progress = { try? StandardStream.errors.write(Array("\($0)\n".utf8)) } }
        do {
            let report = try await Soak.run(settings)
            if arguments.has(.json) {
                try terminal.print(SoakText.json(report))
            } else {
                for line in SoakText.lines(report, on: terminal) { try terminal.print(line) }
            }
            return report.isSound ? .ok : .notFound
        } catch let failure as BenchFailure {
            throw CommandFailure(
                .notFound, failure.message,
                hint: failure.hint ?? "Its output above may say more; --help shows its options.")
        }
    }
}

extension Option {
    fileprivate static let soakSeed = Option.value("seed", "N", "What goes wrong, and when. Default: 1.")
    fileprivate static let soakSeconds = Option.value("seconds", "S", "How long. Default: 300.")
    fileprivate static let soakUsers = Option.value("users", "N", "How many of each app. Default: 50.")
    fileprivate static let soakDirectory = Option.value("dir", "DIR", "Where files go. Default: /var/tmp.")
}

/// Text of a soak test's report, for people or for programs.
enum SoakText {
    static func lines(_ report: SoakReport, on terminal: Terminal) -> [String] {
        var faults = Table([.text("FAULT"), .number("TIMES")])
        for line in report.faults { faults.add([line.fault, String(line.times)]) }
        var lines = faults.lines(on: terminal) + [""]
        lines.append(
            "seed \(report.seed): \(report.deeds) deeds in \(report.seconds) s by \(5 * report.users) users of five apps, "
                + "\(report.refusals) of them refused; \(report.rows) rows compared")
        lines += report.differences.map { "  " + $0 }
        if report.isSound, let settledAfter = report.settledAfter {
            lines.append("all show what their people may SELECT, \(Figure.text(settledAfter)) s after the last fault")
        } else {
            lines.append("WRONG; again with --seed \(report.seed)")
        }
        return lines
    }

    static func json(_ report: SoakReport) -> String {
        var line = JSONLine()
        line.add("scenario", "soak")
        line.add("seed", report.seed)
        line.add("seconds", report.seconds)
        line.add("users", 5 * report.users)
        line.add("deeds", report.deeds)
        line.add("refusals", report.refusals)
        line.add("rows", report.rows)
        line.add("settled_after", report.settledAfter ?? .nan)
        for fault in report.faults { line.add(fault.fault, fault.times) }
        let differences = report.differences.map(JSONLine.quoted).joined(separator: ",")
        line.add("differences", json: "[\(differences)]")
        line.add("sound", report.isSound)
        return line.text
    }
}
