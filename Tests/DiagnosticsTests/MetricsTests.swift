import TestSupport
import Testing

@testable import Diagnostics

private enum Flavour: String, MetricLabel {
    case sweet
    case sour = "so\"ur\\"

    static let labelName = "flavour"
}

@Suite(.within(minutes: 5)) struct MetricsTests {
    private func lines(_ instruments: any Instrument...) -> [String] {
        String(decoding: Exposition.text(of: instruments), as: UTF8.self).split(separator: "\n").map(String.init)
    }

    @Test func `renders counters and gauges with help and type`() {
        let counter = Counter("a_total", "Things\nwith \\.")
        counter.add(3)
        let gauge = Gauge("b", "A level.")
        gauge.set(Int64(-7))
        #expect(
            lines(counter, gauge) == [
                #"# HELP a_total Things\nwith \\."#, "# TYPE a_total counter", "a_total 3",
                "# HELP b A level.", "# TYPE b gauge", "b -7",
            ])
    }

    @Test func `renders every member of a family, also those still at zero`() {
        let family = CounterFamily<Flavour>("c_total", "By flavour.")
        family[.sour].add()
        #expect(
            lines(family).suffix(2) == [#"c_total{flavour="sweet"} 0"#, #"c_total{flavour="so\"ur\\"} 1"#])
    }

    @Test func `renders a histogram as cumulative buckets in seconds`() throws {
        let histogram = Histogram("d_seconds", "Time.", unit: .seconds)
        histogram.record(.microseconds(10))
        histogram.record(.milliseconds(1))
        histogram.record(.seconds(500))
        let text = lines(histogram)
        #expect(text[1] == "# TYPE d_seconds histogram")
        #expect(text[2] == #"d_seconds_bucket{le="8.192e-06"} 0"#)
        #expect(text[3] == #"d_seconds_bucket{le="1.6384e-05"} 1"#)
        #expect(text.contains(#"d_seconds_bucket{le="0.001048576"} 2"#))
        #expect(
            text.suffix(3) == [#"d_seconds_bucket{le="+Inf"} 3"#, "d_seconds_sum 500.00101", "d_seconds_count 3"])
    }

    private func lines(of projects: [ProjectMetrics], naming name: String) -> [String] {
        String(decoding: ProcessMetrics().render(projects), as: UTF8.self).split(separator: "\n").map(String.init)
            .filter { $0.contains(name) }
    }

    @Test func `shows of each table how much was delivered, and how long after its commit`() {
        let metrics = ProjectMetrics(of: "b", tables: 2)
        metrics.tables.meter(of: "public.a").record(deliveries: 3, after: 500_000)
        metrics.tables.meter(of: "public.a").record(deliveries: 1, after: 2_000_000_000)
        metrics.tables.meter(of: "public.\"q").record(deliveries: 1, after: 1)
        #expect(
            lines(of: [metrics], naming: "tidewire_table_deliveries_total").suffix(2) == [
                #"tidewire_table_deliveries_total{table="public.\"q",tenant="b"} 1"#,
                #"tidewire_table_deliveries_total{table="public.a",tenant="b"} 4"#,
            ])
        #expect(lines(of: [metrics], naming: #"lag_seconds{table="public.a",tenant="b"} 2.0"#).count == 1)
        let delays = lines(of: [metrics], naming: #"table="public.a""#).filter { $0.contains("commit_to_socket") }
        #expect(delays.count == 12)
        #expect(
            delays.contains(
                #"tidewire_table_commit_to_socket_seconds_bucket{le="0.001048576",table="public.a",tenant="b"} 1"#))
        #expect(
            delays.contains(
                #"tidewire_table_commit_to_socket_seconds_bucket{le="4.294967296",table="public.a",tenant="b"} 2"#))
        #expect(
            delays.contains(#"tidewire_table_commit_to_socket_seconds_bucket{le="+Inf",table="public.a",tenant="b"} 2"#)
        )
        #expect(delays.contains(#"tidewire_table_commit_to_socket_seconds_sum{table="public.a",tenant="b"} 2.0005"#))
    }

    @Test func `tables beyond the limit are counted together`() throws {
        let meters = TableMeters(limit: 10)
        try together(4) { _ in
            for number in 0..<1000 { meters.meter(of: "public.t\(number)").record(deliveries: 1, after: 1) }
        }
        let figures = TableFigures("a_total", "Help.", .deliveries, of: meters)
        let told = lines(figures).filter { !$0.hasPrefix("#") }
        #expect(told.count == 11 && told.last == #"a_total{table="other"} 3960"#)
        #expect(told.dropLast().allSatisfy { $0.hasSuffix(" 4") })
        let none = TableMeters(limit: 0)
        none.meter(of: "public.a").record(deliveries: 2, after: 1)
        #expect(lines(TableFigures("a_total", "Help.", .deliveries, of: none)).last == #"a_total{table="other"} 2"#)
    }

    @Test func `shows where each project stands, the settings' own without a label`() {
        func lags(_ projects: ProjectMetrics...) -> [String] { lines(of: projects, naming: "tidewire_slot_lag_bytes") }
        let head = lags().prefix(2)
        #expect(lags().last == "tidewire_slot_lag_bytes 0" && lags().count == 3)
        let (own, other) = (ProjectMetrics(), ProjectMetrics(of: #"a"b"#))
        own.slotLagBytes.set(Int64(1))
        other.slotLagBytes.set(Int64(2))
        #expect(
            lags(other, own) == head + ["tidewire_slot_lag_bytes 1", #"tidewire_slot_lag_bytes{tenant="a\"b"} 2"#])
        #expect(lags(ProjectMetrics()) == head + ["tidewire_slot_lag_bytes 0"])
    }

    @Test func `what projects do is told apart like where they stand, whatever kind of metric it is`() {
        let (own, other) = (ProjectMetrics(), ProjectMetrics(of: "b"))
        own.deliveries.add(3)
        other.deliveries.add(4)
        #expect(
            lines(of: [own, other], naming: "tidewire_deliveries_total").suffix(2)
                == ["tidewire_deliveries_total 3", #"tidewire_deliveries_total{tenant="b"} 4"#])
        other.recalls[.log].add()
        #expect(
            lines(of: [own, other], naming: #"{found="log""#)
                == [#"tidewire_recalls_total{found="log"} 0"#, #"tidewire_recalls_total{found="log",tenant="b"} 1"#])
        other.recallSeconds.record(.seconds(2))
        let search = lines(of: [own, other], naming: "tidewire_recall_seconds")
        #expect(search.contains(#"tidewire_recall_seconds_bucket{le="+Inf",tenant="b"} 1"#))
        #expect(search.contains(#"tidewire_recall_seconds_bucket{le="+Inf"} 0"#))
        #expect(search.last == #"tidewire_recall_seconds_count{tenant="b"} 1"#)
        #expect(search.count { $0.hasPrefix("# TYPE") } == 1)
    }

    @Test func `declares every metric of the hub with a valid, unique name`() {
        let text = String(decoding: ProcessMetrics().render([]), as: UTF8.self)
        let names = text.split(separator: "\n").filter { $0.hasPrefix("# TYPE ") }.map { $0.split(separator: " ")[2] }
        #expect(names.count >= 20)
        #expect(names.allSatisfy { $0.hasPrefix("tidewire_") || $0.hasPrefix("process_") })
        #expect(text.contains(#"tidewire_ingest_changes_total{op="truncate"} 0"#))
        #expect(text.contains(#"tidewire_replication_reconnects_total{reason="slot_busy"} 0"#))
        #expect(text.contains(#"tidewire_impossible_states_total{room="asking"} "#))
        #expect(text.hasSuffix("\n"))
    }

    @Test func `each help can be read alone`() {
        #expect(HelpTexts.faults(in: String(decoding: ProcessMetrics().render([]), as: UTF8.self)) == [])
    }

    @Test(arguments: [
        ("a", "Times that something happened.", []), ("a", "Such questions that got no answer.", ["points with such"]),
        ("a", "Of those, ones that are being told now.", ["points with those"]),
        ("a_bytes", "Memory held for blocked connections.", ["does not say byte"]),
        ("a", "Channels joined.", ["too few words"]),
        ("a", "How often something happened here", ["no sentence"]),
    ])
    func `a help that needs another one is found`(_ name: String, _ help: String, _ faults: [String]) {
        #expect(HelpTexts.faults(in: "# HELP \(name) \(help)\n") == faults.map { "\(name): \($0): \(help)" })
    }

    @Test func `two metrics that say the same are found`() {
        let text = "# HELP a Times that something happened.\n# HELP b Times that something happened.\n"
        #expect(HelpTexts.faults(in: text) == ["b: says what a says"])
    }

    @Test func `says what the process takes and which version it is`() {
        let metrics = ProcessMetrics(version: "1.2.3", swift: "6.3")
        metrics.cpuTime.set(nanoseconds: 1_250_000_000)
        let lines = String(decoding: metrics.render([]), as: UTF8.self).split(separator: "\n")
        #expect(lines.contains("process_cpu_seconds_total 1.25"))
        #expect(lines.contains("# TYPE process_cpu_seconds_total counter"))
        #expect(lines.contains(#"tidewire_build_info{version="1.2.3",swift="6.3"} 1"#))
    }
}

@Suite(.within(minutes: 5)) struct HistogramTests {
    @Test func `gives every value a bucket whose bound is at most a sixteenth above it`() {
        var values = (0..<64).flatMap { exponent -> [UInt64] in
            let power: UInt64 = 1 << UInt64(exponent)
            return [power - 1, power, power + 1, power + power / 3]
        }
        values += [.max, .max - 1]
        for value in values {
            let bound = Histogram.upperBound(ofBucket: Histogram.index(of: value))
            #expect(bound >= value)
            #expect(bound - value <= value / 16, "\(value)")
        }
    }

    @Test func `has buckets without holes`() {
        for index in 1..<Histogram.bucketCount {
            #expect(Histogram.index(of: Histogram.upperBound(ofBucket: index - 1) + 1) == index)
        }
        #expect(Histogram.upperBound(ofBucket: Histogram.bucketCount - 1) == .max)
    }

    @Test func `answers quantiles within the stated error`() throws {
        let histogram = Histogram(unit: .bytes)
        for value in 1...10_000 { histogram.record(UInt64(value)) }
        let snapshot = histogram.snapshot()
        for share in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let found = try #require(snapshot.quantile(share))
            let exact = UInt64((share * 10_000).rounded(.up))
            #expect(found >= exact && found <= exact + exact / 16, "\(share)")
        }
        #expect(snapshot.quantile(0) == 1)
        #expect(snapshot.quantile(1) == 10_000)
        #expect(snapshot.sum == 50_005_000)
    }

    @Test func `has no quantile before the first value`() {
        #expect(Histogram(unit: .seconds).snapshot().quantile(0.5) == nil)
    }

    @Test func `counts a clock that stepped back as no time`() {
        let histogram = Histogram(unit: .seconds)
        histogram.record(.seconds(-1))
        histogram.record(.seconds(Int64.max))
        #expect(histogram.snapshot().quantile(0) == 0)
        #expect(histogram.snapshot().largest == .max)
    }

    @Test func `loses no observation of several threads`() throws {
        let histogram = Histogram(unit: .bytes)
        try together(4) { _ in for value in 0..<10_000 { histogram.record(UInt64(value)) } }
        #expect(histogram.snapshot().count == 40_000)
    }
}

@Suite(.within(minutes: 5)) struct LimitsTests {
    @Test func `relate to each other as they must`() {
        Limits.checkInvariants()
    }
}
