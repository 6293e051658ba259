import Bench
import Console
import Settings

/// Command `tidewire bench verify`.
struct VerifyCommand: Command {
    let name = "verify"
    let summary = "Break everything around a hub for a while, and check that its clients miss nothing."
    let discussion = """
        Starts a private PostgreSQL, a hub, writers on tables with policies and filters, and hundreds of clients of four \
        kinds behind a proxy that loses, delays and cuts: plain ones, that join anew each time; explicit ones, that resume \
        from their position; ones that are known again by their login's session; and real ones, the unmodified client for \
        Python, where --python names one that has it.

        What goes wrong follows from the seed: sockets cut, links stalled and slow, a proxy that takes events along when it \
        dies, frozen clients, tokens renewed and expired; the hub killed, terminated, frozen, on a full disk; the database \
        killed, restarted, its sessions and the replication ended, the catalog, a policy, a publication and memberships \
        changed, the slot dropped; commits that wait for a synchronous standby that is away; the hub's clock stepped by up to \
        two hours, where libfaketime is installed.

        The oracle is PostgreSQL: triggers write down each committed change with who may see it, as of its commit. One event \
        that is missing, duplicated, out of order, wrongly visible or wrong, one close that nothing explains, and the run is \
        void (exit code 1). Again across a cut may come, to clients that are known again, what they had not acknowledged. A \
        loss that history forces (a dropped slot) has to be told, and is counted apart.

        With --cluster, three hubs on three NATS servers serve the clients, behind a load balancer without stickiness. Also \
        the servers are killed, one and all, terminated and frozen, another one leads, and the network is cut around servers and hubs, which needs \
        root.
        """
    let options: [Option] = [
        .json, .seed, .seconds, .clients, .python, .cluster, .serverProgram, .only, .without, .directory, .keep,
    ]
    var examples: [Example] {
        [
            Example(
                "tidewire bench verify --seed 7 --seconds 3600", "An hour of it, and the same again with the same seed:"
            ),
            Example(
                "tidewire bench verify --cluster --nats-server \"$(Tests/Tools/nats)\" --seconds 600",
                "Three hubs and three NATS servers:"),
            Example("tidewire bench verify --python .build/clients/bin/python", "With real clients among them:"),
        ]
    }

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        var settings = try settings(arguments)
        if terminal.isInteractive { settings.progress = { try? StandardStream.errors.write(Array("\($0)\n".utf8)) } }
        do {
            let report = try Verification.run(settings)
            if arguments.has(.json) {
                try terminal.print(VerifyText.json(report))
            } else {
                for line in VerifyText.lines(report, on: terminal) { try terminal.print(line) }
            }
            return report.isVoid ? .notFound : .ok
        } catch let failure as BenchFailure {
            throw CommandFailure(
                .notFound, failure.message,
                hint: failure.hint ?? "Its output above may say more; --help shows its options.")
        }
    }

    private func settings(_ arguments: Arguments) throws -> VerifySettings {
        var settings = VerifySettings()
        if case .integer(let seed)? = try arguments.value(of: .seed, as: .integer(0...Int64.max)) {
            settings.seed = UInt64(seed)
        }
        if case .integer(let seconds)? = try arguments.value(of: .seconds, as: .integer(1...1_000_000)) {
            settings.seconds = Int(seconds)
        }
        if case .integer(let clients)? = try arguments.value(of: .clients, as: .integer(20...5000)) {
            settings.clients = Int(clients)
        }
        settings.python = arguments.value(of: .python)
        if arguments.has(.cluster) {
            settings.servers = arguments.value(of: .serverProgram) ?? "nats-server"
        } else if arguments.value(of: .serverProgram) != nil {
            throw UsageError("--nats-server needs --cluster")
        }
        settings.only = words(arguments.value(of: .only))
        settings.without = words(arguments.value(of: .without))
        settings.directory = arguments.value(of: .directory) ?? settings.directory
        settings.keeps = arguments.has(.keep)
        return settings
    }

    private func words(_ text: String?) -> [String] { (text ?? "").split(separator: ",").map(String.init) }
}

extension Option {
    fileprivate static let seed = Option.value("seed", "N", "What goes wrong, and when. Default: 1.")
    fileprivate static let seconds = Option.value("seconds", "S", "How long. Default: 300.")
    fileprivate static let clients = Option.value("clients", "N", "How many clients. Default: 240.")
    fileprivate static let python = Option.value(
        "python", "PATH", "A Python with the package `realtime`: ten of the clients are real then.")
    fileprivate static let cluster = Option.flag(
        "cluster", "Three hubs on three NATS servers, in place of one hub.")
    fileprivate static let serverProgram = Option.value(
        "nats-server", "FILE", "The program of the NATS servers, 2.15.1 or later. Default: nats-server on the PATH.")
    fileprivate static let only = Option.value(
        "only", "FAULTS", "Only these, by commas: \(VerifySettings.faults.joined(separator: ", ")); or none.")
    fileprivate static let without = Option.value("without", "FAULTS", "All but these.")
    fileprivate static let directory = Option.value("dir", "DIR", "Where files go. Default: /var/tmp.")
    fileprivate static let keep = Option.flag(
        "keep",
        "Leave a directory whose name ends in .kept: all logs, the hub's data, and in the file notes what each client heard and when."
    )
}

/// Text of a verification's report, for people or for programs.
enum VerifyText {
    static func lines(_ report: VerifyReport, on terminal: Terminal) -> [String] {
        var clients = Table([
            .text("CLIENTS"), .number("HOW MANY"), .number("DELIVERIES"), .number("AGAIN"), .number("OLDEST, S"),
            .number("MISSING, TOLD"),
        ])
        for kind in report.kinds {
            clients.add([
                kind.kind, String(kind.clients), String(kind.deliveries), String(kind.repeated),
                Figure.text(kind.oldestRepeatSeconds), String(kind.told),
            ])
        }
        var faults = Table([.text("FAULT"), .number("TIMES"), .number("LOST"), .number("LOST, REAL")])
        for line in report.faults {
            faults.add([line.fault, String(line.times), String(line.lost), String(line.lostOfReal)])
        }
        var lines = clients.lines(on: terminal) + [""] + faults.lines(on: terminal) + [""]
        lines.append(
            "seed \(report.seed): \(report.deliveries) deliveries of \(report.changes) changes in \(report.transactions) "
                + "transactions to \(report.clients) clients on \(report.connections) connections, \(report.faultsDone) faults, "
                + "\(report.bytesLostOnTheWay) bytes lost on the way")
        lines += report.remarks
        lines.append(report.counts.map { "\($0.kind) \($0.count)" }.joined(separator: ", "))
        lines += report.findings.map { "  " + $0 }
        lines.append(report.isVoid ? "VOID; again with --seed \(report.seed)" : "nothing is unaccounted for")
        return lines
    }

    static func json(_ report: VerifyReport) -> String {
        var line = JSONLine()
        line.add("scenario", "verify")
        line.add("seed", report.seed)
        line.add("seconds", report.seconds)
        line.add("clients", report.clients)
        line.add("transactions", report.transactions)
        line.add("failed_transactions", report.failedTransactions)
        line.add("changes", report.changes)
        line.add("deliveries", report.deliveries)
        line.add("connections", report.connections)
        line.add("bytes_lost", report.bytesLostOnTheWay)
        line.add("faults", report.faultsDone)
        for count in report.counts { line.add(count.kind.split(separator: " ").joined(separator: "_"), count.count) }
        line.add("kinds", json: list(report.kinds.map(json)))
        line.add("by_fault", json: list(report.faults.map(json)))
        line.add("findings", json: list(report.findings.map(JSONLine.quoted)))
        line.add("remarks", json: list(report.remarks.map(JSONLine.quoted)))
        line.add("void", report.isVoid)
        return line.text
    }

    private static func list(_ elements: [String]) -> String { "[" + elements.joined(separator: ",") + "]" }

    private static func json(_ kind: VerifyReport.KindLine) -> String {
        var line = JSONLine()
        line.add("kind", kind.kind)
        line.add("clients", kind.clients)
        line.add("deliveries", kind.deliveries)
        line.add("repeated", kind.repeated)
        line.add("oldest_repeat_seconds", kind.oldestRepeatSeconds)
        line.add("told", kind.told)
        return line.text
    }

    private static func json(_ fault: VerifyReport.FaultLine) -> String {
        var line = JSONLine()
        line.add("fault", fault.fault)
        line.add("times", fault.times)
        line.add("lost", fault.lost)
        line.add("lost_real", fault.lostOfReal)
        return line.text
    }
}
