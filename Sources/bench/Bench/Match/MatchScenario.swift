import Policy
import System

/// Benchmark of finding the subscriptions that match a change: the predicate index, compared with trying all of them.
struct MatchScenario: Scenario {
    let name = "match"
    let summary = "Finding the subscribers of a change among 1, 1,000 and 100,000 distinct filters."
    let discussion = """
        Subscribes to one table with distinct filters, and takes stored transactions (inserts of eight columns, some 270 \
        bytes a row, a hundred to a transaction) through the predicate index as a socket loop does: each change is read \
        from its stored form, looked up, and each subscriber that it met is visited. Every change meets one subscriber, \
        so as many events are delivered whether there is one filter or 100,000.

        Baselines, in turns with the index: every filter's compiled predicate held against every row, which is found in \
        place once (linear scan), and the column's bytes against the bytes of all filters, without types or operators \
        (bytes alone). Ranges (`and=(id.gte.…,id.lt.…)`, of which each change meets one, and `id=gt.…`, of which it meets \
        ten) and beginnings (`title=like.…%`, one) are beside a linear scan by the thousand, ten and hundred thousand. \
        Filters that nothing leads to, `like.%…%`, are tried one by one by the index too: they are measured by the \
        thousand, to be said. It is the processor time of one thread; every run's deliveries are checked against what \
        was to be met.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        var results: [BenchResult] = []
        for column in MatchShape.Filtered.allCases where settings.includes("\(column)") {
            var race = try EqualityRace(column, settings)
            results += try race.run(settings)
        }
        for family in RangeRace.all where settings.includes(family.name) { results += try family.run(settings) }
        for scan in ScanRace.all where settings.includes(scan.name) { results += try scan.run(settings) }
        if settings.includes(SubscribingCost.name) { results += try SubscribingCost.run(settings) }
        return results
    }
}

/// Comparison for equality filters on one column, with several numbers of filters.
private struct EqualityRace: ~Copyable {
    private let column: MatchShape.Filtered
    private let most: Int
    private let changes: Int
    private var one: Entry
    private var thousand: Entry
    private var many: Entry
    private let linear: LinearRunner
    private let bytes: BytesRunner
    private let dictionary: DictionaryRunner
    /// Number of changes that the baselines without an index get. They are slow, so they get fewer than the index.
    private let scanned: Int

    /// Predicate index with a certain number of filters, the changes for it (each matches one filter), and the
    /// durations of its runs.
    struct Entry: ~Copyable {
        var index = IndexRunner()
        let changes: MatchChanges
        var nanoseconds = Samples()

        init(_ predicates: ArraySlice<Predicate>, changes: Int) {
            index.add(Array(predicates))
            self.changes = MatchChanges(count: changes, values: predicates.count)
        }

        mutating func measure(passes: Int) throws {
            let expected = Expected.deliveries(changes, parts: changes.parts.count)
            try Expected.check(try index.run(changes.parts[...]), expected)
            let began = Clock.threadNanoseconds()
            for _ in 0..<passes { try Expected.check(try index.run(changes.parts[...]), expected) }
            nanoseconds.add(Double(Clock.threadNanoseconds() - began) / Double(passes * changes.count))
        }
    }

    init(_ column: MatchShape.Filtered, _ settings: BenchSettings) throws {
        self.column = column
        most = settings.isQuick ? 2000 : 100_000
        changes = settings.isQuick ? 2000 : 20_000
        scanned = settings.isQuick ? 100 : 1000
        settings.progress("\(column): making \(most) filters")
        var predicates: [Predicate] = []
        for number in 0..<most {
            predicates.append(try MatchShape.predicate("\(column.name)=eq.\(column.value(number))"))
        }
        one = Entry(predicates[..<1], changes: changes)
        thousand = Entry(predicates[..<1000], changes: changes)
        many = Entry(predicates[...], changes: changes)
        linear = LinearRunner(predicates: predicates)
        bytes = BytesRunner(column, count: most)
        dictionary = DictionaryRunner(column, count: most)
    }

    mutating func run(_ settings: BenchSettings) throws -> [BenchResult] {
        var scan = Samples()
        var plain = Samples()
        var naive = Samples()
        let rounds = settings.rounds(usually: 7)
        for round in 0..<rounds {
            settings.progress("\(column): round \(round + 1) of \(rounds)")
            let passes = settings.isQuick ? 2 : 20
            try one.measure(passes: passes)
            try many.measure(passes: passes)
            try thousand.measure(passes: passes)
            scan.add(try measure { try linear.run($0) })
            plain.add(try measure { try bytes.run($0) })
            naive.add(try measure(many.changes.parts.count, passes) { try dictionary.run($0) })
        }
        return results(scan, plain, naive)
    }

    /// Returns the changes per second of a scan over the first `scanned` of the changes that the index gets.
    private func measure(_ run: (ArraySlice<[UInt8]>) throws -> Deliveries) throws -> Double {
        try measure(scanned / MatchChanges.changesPerPart, 1, run)
    }

    private func measure(
        _ parts: Int, _ passes: Int, _ run: (ArraySlice<[UInt8]>) throws -> Deliveries
    ) throws -> Double {
        let expected = Expected.deliveries(many.changes, parts: parts)
        let began = Clock.threadNanoseconds()
        for _ in 0..<passes { try Expected.check(try run(many.changes.parts[..<parts]), expected) }
        let count = parts * MatchChanges.changesPerPart * passes
        return Double(count) * 1e9 / Double(Clock.threadNanoseconds() - began)
    }

    private func results(_ scan: Samples, _ plain: Samples, _ naive: Samples) -> [BenchResult] {
        let rate = Rate.perSecond(many.nanoseconds)
        return [
            result(1, "lookups", Rate.perSecond(one.nanoseconds)),
            result(1000, "lookups", Rate.perSecond(thousand.nanoseconds)),
            result(most, "lookups", rate, .init("dictionary of strings", naive), .ratioAtLeast(1)),
            result(most, "lookups", rate, .init("linear scan", scan), .ratioAtLeast(5000)),
            result(most, "lookups", rate, .init("bytes alone", plain)),
            BenchResult(
                scenario: "match", caseName: "\(column), \(most) filters", metric: "time a delivered change",
                unit: "ns", values: many.nanoseconds, baseline: .init("1 filter", one.nanoseconds),
                target: .ratioAtLeast(1 / 1.5), isLessBetter: true),
        ]
    }

    private func result(
        _ filters: Int, _ metric: String, _ values: Samples, _ baseline: BenchResult.Baseline? = nil,
        _ target: Target? = nil
    ) -> BenchResult {
        BenchResult(
            scenario: "match", caseName: "\(column), \(filters) filters", metric: metric, unit: "changes/s",
            values: values, baseline: baseline, target: target)
    }
}

/// Comparison for filters with `<`, `>` or a prefix, which the index finds by the order of a column's values.
private struct RangeRace {
    let name: String
    /// Number of values that the changes have, counted from the lowest; nil for all values that filters name.
    let values: Int?
    let filter: @Sendable (Int) -> String

    static let all = [
        RangeRace(name: "between", values: nil) {
            let (low, high) = (MatchShape.Filtered.int8.value($0), MatchShape.Filtered.int8.value($0 + 1))
            return "and=(id.gte.\(low),id.lt.\(high))"
        },
        RangeRace(name: "gt", values: 20) { "id=gt.\(MatchShape.Filtered.int8.value($0))" },
        RangeRace(name: "prefix", values: nil) { "title=like.title of row \($0) %" },
    ]

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let counts = settings.isQuick ? [1000] : [1000, 10_000, 100_000]
        settings.progress("\(name): making \(counts.last ?? 0) filters")
        let predicates = try (0..<(counts.last ?? 0)).map { try MatchShape.predicate(filter($0)) }
        return try counts.map { try run(Array(predicates[..<$0]), settings) }
    }

    private func run(_ predicates: [Predicate], _ settings: BenchSettings) throws -> BenchResult {
        var index = IndexRunner()
        index.add(predicates)
        let linear = LinearRunner(predicates: predicates)
        let changes = MatchChanges(count: settings.isQuick ? 500 : 10_000, values: values ?? predicates.count)
        // A scan is slow, so it gets fewer changes.
        let scanned = changes.parts[..<max(1, min(changes.parts.count, 200_000 / predicates.count / 10))]
        var ours = Samples()
        var scan = Samples()
        try Expected.check(try index.run(scanned), try linear.run(scanned))
        for _ in 0..<settings.rounds(usually: 7) {
            var began = Clock.threadNanoseconds()
            _ = try index.run(changes.parts[...])
            ours.add(Double(changes.count) * 1e9 / Double(Clock.threadNanoseconds() - began))
            began = Clock.threadNanoseconds()
            _ = try linear.run(scanned)
            let count = scanned.count * MatchChanges.changesPerPart
            scan.add(Double(count) * 1e9 / Double(Clock.threadNanoseconds() - began))
        }
        return BenchResult(
            scenario: "match", caseName: "\(name), \(predicates.count) filters", metric: "lookups", unit: "changes/s",
            values: ours, baseline: .init("linear scan", scan),
            target: predicates.count == 10_000 ? .ratioAtLeast(100) : nil)
    }
}

/// Comparison for a thousand filters that the index must try one after the other.
private struct ScanRace {
    let name: String
    let filter: @Sendable (Int) -> String

    static let all = [
        ScanRace(name: "like %…%, 1000 filters") { "title=like.%of row \($0) %" }
    ]

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        var predicates: [Predicate] = []
        for number in 0..<1000 { predicates.append(try MatchShape.predicate(filter(number))) }
        var index = IndexRunner()
        index.add(predicates)
        let linear = LinearRunner(predicates: predicates)
        let changes = MatchChanges(count: settings.isQuick ? 200 : 2000, values: 100_000)
        var ours = Samples()
        var scan = Samples()
        for _ in 0..<settings.rounds(usually: 7) {
            var began = Clock.threadNanoseconds()
            let met = try index.run(changes.parts[...])
            ours.add(Double(changes.count) * 1e9 / Double(Clock.threadNanoseconds() - began))
            began = Clock.threadNanoseconds()
            try Expected.check(met, try linear.run(changes.parts[...]))
            scan.add(Double(changes.count) * 1e9 / Double(Clock.threadNanoseconds() - began))
        }
        return [
            BenchResult(
                scenario: "match", caseName: name, metric: "tried", unit: "changes/s", values: ours,
                baseline: .init("linear scan", scan))
        ]
    }
}

/// Measurement of the time for subscribing and unsubscribing, and of the memory of a subscription.
private enum SubscribingCost {
    static let name = "subscribing"

    static func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let count = settings.isQuick ? 2000 : 100_000
        let values = (0..<count).map { MatchShape.Filtered.uuid.value($0) }
        var predicates: [Predicate] = []
        for value in values { predicates.append(try MatchShape.predicate("owner_id=eq.\(value)")) }
        var added = Samples()
        var removed = Samples()
        var bytes = Samples()
        var plain: (added: Samples, removed: Samples) = (Samples(), Samples())
        for _ in 0..<settings.rounds(usually: 7) {
            var index = IndexRunner()
            let before = ResidentMemory.bytes
            var began = Clock.threadNanoseconds()
            index.add(predicates)
            added.add(Double(Clock.threadNanoseconds() - began) / Double(count))
            bytes.add(Double(ResidentMemory.bytes - before) / Double(count))
            began = Clock.threadNanoseconds()
            index.removeAll()
            removed.add(Double(Clock.threadNanoseconds() - began) / Double(count))
            try measureDictionary(values, &plain.added, &plain.removed)
        }
        let name = "dictionary of strings"
        return [
            result(count, "add", added, "ns", .init(name, plain.added), .ratioAtLeast(0.2)),
            result(count, "remove", removed, "ns", .init(name, plain.removed), .ratioAtLeast(0.2)),
            result(count, "resident memory", bytes, "B/filter"),
        ]
    }

    private static func measureDictionary(_ values: [String], _ added: inout Samples, _ removed: inout Samples) throws {
        var members: [String: [UInt32]] = [:]
        var began = Clock.threadNanoseconds()
        for (number, value) in values.enumerated() { members[value, default: []].append(UInt32(number)) }
        added.add(Double(Clock.threadNanoseconds() - began) / Double(values.count))
        began = Clock.threadNanoseconds()
        for value in values { members[value] = nil }
        removed.add(Double(Clock.threadNanoseconds() - began) / Double(values.count))
        guard members.isEmpty else { throw BenchFailure("void (match): the dictionary keeps what was removed") }
    }

    private static func result(
        _ count: Int, _ metric: String, _ values: Samples, _ unit: String, _ baseline: BenchResult.Baseline? = nil,
        _ target: Target? = nil
    ) -> BenchResult {
        BenchResult(
            scenario: "match", caseName: "\(name), \(count) filters", metric: metric, unit: unit, values: values,
            baseline: baseline, target: target, isLessBetter: true)
    }
}

private enum Rate {
    static func perSecond(_ nanoseconds: Samples) -> Samples { Samples(nanoseconds.values.map { 1e9 / $0 }) }
}

/// Deliveries that a correct run has to find.
private enum Expected {
    /// Returns the deliveries of changes that match one subscriber each: the one whose filter has the change's value.
    static func deliveries(_ changes: MatchChanges, parts: Int) -> Deliveries {
        var deliveries = Deliveries()
        for (change, number) in changes.numbers.prefix(parts * MatchChanges.changesPerPart).enumerated() {
            deliveries.add(UInt32(number), change: change)
        }
        return deliveries
    }

    static func check(_ met: Deliveries, _ expected: Deliveries) throws {
        guard met == expected else {
            throw BenchFailure(
                "void (match): \(met.count) deliveries, or others, where \(expected.count) were to be met")
        }
    }
}
