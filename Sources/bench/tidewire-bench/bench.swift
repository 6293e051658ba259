import Bench
import Console
import Settings

/// Command `tidewire bench`.
struct BenchCommand: Command {
    let name = "bench"
    let summary = "Measure the hub on this machine, beside its baselines."
    let discussion = """
        Every scenario starts what it needs, measures the hub and its baseline in the same run, in turns, and reports \
        medians with the smallest and largest of all rounds. When a check finds a lost, doubled or wrong event there are \
        no figures.
        """
    let subcommands: [any Command] =
        Scenarios.all.map(ScenarioCommand.init) + [
            VerifyCommand(), SoakCommand(), DrainCommand(), ClientsCommand(), BareServerCommand(),
        ]
}

private struct ScenarioCommand: Command {
    let scenario: any Scenario

    var name: String { scenario.name }
    var summary: String { scenario.summary }
    var discussion: String { scenario.discussion }
    let options: [Option] = [.json, .quick, .rounds, .only, .directory]
    var examples: [Example] {
        [Example("tidewire bench \(name) --dir /var/lib/tidewire", "On the disk that will hold the log:")]
    }

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        var settings = BenchSettings()
        settings.isQuick = arguments.has(.quick)
        settings.only = arguments.value(of: .only) ?? ""
        settings.directory = arguments.value(of: .directory) ?? settings.directory
        if case .integer(let rounds)? = try arguments.value(of: .rounds, as: .integer(1...1000)) {
            settings.rounds = Int(rounds)
        }
        if terminal.isInteractive { settings.progress = { StandardStream.errors.note($0) } }
        let report = BenchReport(isJSON: arguments.has(.json), isQuick: settings.isQuick)
        try report.printMachine(Machine.description(directory: settings.directory), terminal)
        do {
            try report.printResults(try scenario.run(settings), terminal)
        } catch let failure as BenchFailure {
            throw CommandFailure(
                .notFound, failure.message,
                hint: failure.hint ?? "Its output above may say more; --help shows its options.")
        }
        return .ok
    }
}

extension Option {
    fileprivate static let quick = Option.flag("quick", "A small run that shows that it works; nothing is judged.")
    fileprivate static let rounds = Option.value("rounds", "N", "How often each thing is measured.")
    fileprivate static let only = Option.value("only", "TEXT", "Only cases whose name has TEXT in it.")
    fileprivate static let directory = Option.value(
        "dir", "DIR", "Where files go; on a disk, not in memory. Default: /var/tmp.")
}

extension StandardStream {
    fileprivate func note(_ text: String) { try? write(Array("\(text) ...\n".utf8)) }
}

/// Report of a benchmark's figures, for people or for programs.
struct BenchReport {
    let isJSON: Bool
    let isQuick: Bool

    func printMachine(_ description: String, _ terminal: Terminal) throws {
        if isJSON {
            var line = JSONLine()
            line.add("machine", description)
            try terminal.print(line.text)
        } else {
            try terminal.print(description)
        }
        try terminal.flush()
    }

    func printResults(_ results: [BenchResult], _ terminal: Terminal) throws {
        let results = results.map { result in
            var result = result
            result.isJudged = !isQuick
            return result
        }
        if isJSON {
            for result in results { try terminal.print(Self.json(result)) }
        } else {
            for line in Self.table(results).lines(on: terminal) { try terminal.print(line) }
        }
    }

    static func table(_ results: [BenchResult]) -> Table {
        var table = Table([
            .text("CASE"), .text("METRIC"), .number("HUB"), .number("MIN-MAX"), .text("UNIT"), .text("BASELINE"),
            .number("BASELINE'S"), .number("RATIO"), .number("MIN-MAX"), .number("TARGET"), .text(""),
        ])
        for result in results { table.add(cells(result)) }
        return table
    }

    private static func cells(_ result: BenchResult) -> [String] {
        let ratios = result.ratios
        return [
            result.caseName, result.metric, Figure.text(result.values.median), Figure.range(result.values), result.unit,
            result.baseline?.name ?? "", result.baseline.map { Figure.text($0.values.median) } ?? "",
            ratios.map { Figure.ratio($0.median) } ?? "",
            ratios.map { Figure.ratio($0.minimum) + "-" + Figure.ratio($0.maximum) } ?? "",
            target(result.target), result.isReached.map { $0 ? "pass" : "MISS" } ?? "",
        ]
    }

    private static func target(_ target: Target?) -> String {
        switch target {
        case nil: ""
        case .ratioAtLeast(let least): ">= " + Figure.ratio(least) + "x"
        case .valueAtLeast(let least): ">= " + Figure.text(least)
        case .valueAtMost(let most): "<= " + Figure.text(most)
        }
    }

    static func json(_ result: BenchResult) -> String {
        var line = JSONLine()
        line.add("scenario", result.scenario)
        line.add("case", result.caseName)
        line.add("metric", result.metric)
        line.add("value", result.values.median)
        line.add("unit", result.unit)
        line.add("baseline", result.baseline?.name)
        line.add("baseline_value", result.baseline?.values.median ?? .nan)
        line.add("ratio", result.ratio ?? .nan)
        addTarget(result.target, to: &line)
        line.add("rounds", result.values.count)
        line.add("min", result.values.minimum)
        line.add("max", result.values.maximum)
        line.add("ratio_min", result.ratios?.minimum ?? .nan)
        line.add("ratio_max", result.ratios?.maximum ?? .nan)
        line.add("reached", json: result.isReached.map { $0 ? "true" : "false" } ?? "null")
        return line.text
    }

    private static func addTarget(_ target: Target?, to line: inout JSONLine) {
        let (number, rule): (Double, String?) =
            switch target {
            case nil: (.nan, nil)
            case .ratioAtLeast(let least): (least, "ratio at least")
            case .valueAtLeast(let least): (least, "value at least")
            case .valueAtMost(let most): (most, "value at most")
            }
        line.add("target", number)
        line.add("target_rule", rule)
    }
}

/// Formatter of numbers, with only the digits that are meaningful.
enum Figure {
    static func text(_ value: Double) -> String {
        guard value.isFinite else { return "-" }
        let magnitude = value.magnitude
        if magnitude >= 1_000_000 { return decimals(value / 1_000_000, 2) + "M" }
        if magnitude >= 10_000 { return decimals(value / 1000, 0) + "k" }
        if magnitude >= 100 { return decimals(value, 0) }
        return decimals(value, magnitude >= 10 ? 1 : 2)
    }

    static func ratio(_ value: Double) -> String { value.isFinite ? decimals(value, 2) : "-" }

    static func range(_ samples: Samples) -> String { text(samples.minimum) + "-" + text(samples.maximum) }

    private static func decimals(_ value: Double, _ count: Int) -> String {
        let scale = (0..<count).reduce(1.0) { scale, _ in scale * 10 }
        let units = Int((value.magnitude * scale).rounded())
        let sign = value < 0 && units > 0 ? "-" : ""
        let whole = String(units / Int(scale))
        if count == 0 { return sign + whole }
        let fraction = String(units % Int(scale))
        return sign + whole + "." + String(repeating: "0", count: count - fraction.count) + fraction
    }
}

/// Command by which the benchmark `ingest` starts its worker process. It has no other use, but it is not hidden,
/// because hiding it would not help.
private struct DrainCommand: Command {
    let name = DrainWorker.Order.command
    let summary = "Used by ingest: drain a slot into an event log up to a position."
    let discussion = """
        Follows a slot into the log of a data directory until everything up to UNTIL is durable and confirmed, then \
        prints the most memory that was resident.
        """
    let operands = [
        Operand("URL", .one, "The database."), Operand("SLOT", .one, "The replication slot."),
        Operand("PUBLICATION", .one, "The publication."),
        Operand("UNTIL", .one, "The position in the WAL, e.g. 0/1A2B3C8."),
        Operand("DIR", .one, "The data directory."),
        Operand("STREAMING", .one, "Whether large transactions are streamed: on or off."),
    ]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        guard let order = DrainWorker.Order(words: arguments.operands) else {
            throw UsageError("UNTIL is no position in the WAL")
        }
        try terminal.print("peak_kib \(try DrainWorker.run(order))")
        return .ok
    }
}

/// Command by which scenarios start their processes of clients. People can use it by hand, too.
private struct ClientsCommand: Command {
    let name = "clients"
    let summary = "Used by scenarios with clients: many clients of a server here, told by lines what to do."
    let discussion = """
        Reads commands from standard input, one a line, and answers each with a JSON object when it is done. {n} stands \
        for a client's number, {n:D} for that in D digits, {n%K} for its rest by K, {n/K} for how often K is in it, {token} for a \
        token of its own:

          sign SECRET CLAIMS
          connect PORT PATH FIRST COUNT
          join TOPIC PAYLOAD
          expect FIRST COUNT [OWNER|- [STRIDE]]
          await MILLISECONDS [COUNT]
          window COUNT
          talk BYTES MICROSECONDS COUNT SPEAKERS GROUP[,GROUP...]
          watch KEY
          track COUNT one|all PAYLOAD
          depart COUNT
          cut
          back PORT PATH MILLISECONDS TOPIC PAYLOAD
          slow BYTES MILLISECONDS
          report
          sample
          heartbeat SECONDS
          quit

        A change carries "seq", "at" (Unix microseconds) and "owner"; a report says what came in its place, what is \
        missing, doubled, skipped or another's, and how long it took in microseconds.

        Clients that talk have joined a channel for each group; so many in a row share it. Each says COUNT messages in \
        each, one in so many MICROSECONDS, or with 0 as soon as its last one has come back. Clients that track have joined with \
        the presence key that is watched. \
        Clients that were cut come back as those do whose sockets were: evenly over the time, with refs that go on.
        """

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        try LoadGenerator.run()
        return .ok
    }
}

private struct BareServerCommand: Command {
    let name = "bare-server"
    let summary = "Used by scenarios with clients: a bare loop of send() to compare with, told by lines what to do."
    let discussion = """
        Reads commands from standard input, one a line, and answers each with a JSON object when it is done:

          listen
          ready COUNT
          send COUNT TOGETHER FIRST TEMPLATE
          quit

        In the template, {seq} is a message's number, from FIRST on, and {at} the moment in Unix microseconds. One that \
        begins with a control character is sent as binary.
        """

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        try BareServer.run()
        return .ok
    }
}
