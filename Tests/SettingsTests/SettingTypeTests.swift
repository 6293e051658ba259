import TestSupport
import Testing

@testable import Settings

private func parse(_ type: SettingType, _ text: String) -> SettingValue? {
    try? type.parse(text)
}

@Suite(.within(minutes: 5)) struct SettingTypeTests {
    @Test(arguments: ["on", "true", "yes", "1", "ON", "True"])
    func `reads what means on`(text: String) {
        #expect(parse(.boolean, text) == .boolean(true))
    }

    @Test(arguments: ["off", "false", "no", "0", "OFF"])
    func `reads what means off`(text: String) {
        #expect(parse(.boolean, text) == .boolean(false))
    }

    @Test(arguments: ["", "o", "2", "enabled", " on"])
    func `refuses what could mean either`(text: String) {
        #expect(parse(.boolean, text) == nil)
    }

    @Test(arguments: [("5", 5), ("-3", -3), ("+7", 7), ("10", 10)])
    func `reads whole numbers`(text: String, number: Int64) {
        #expect(parse(.integer(-3...10), text) == .integer(number))
    }

    @Test(arguments: ["", "-4", "11", "1.0", "0x1", "99999999999999999999"])
    func `refuses other numbers`(text: String) {
        #expect(parse(.integer(-3...10), text) == nil)
    }

    @Test(arguments: [
        ("0", 0), ("512", 512), ("1B", 1), ("1kB", 1024), ("64MB", 64 << 20), ("10GB", 10 << 30), ("2TB", 2 << 40),
        ("1.5GB", 3 << 29), ("64 MB", 64 << 20),
    ])
    func `reads sizes as PostgreSQL does`(text: String, bytes: Int64) {
        #expect(parse(.size(0...Int64.max), text) == .size(bytes))
    }

    @Test(arguments: ["", "MB", "64mb", "64MiB", "64 M B", "-1MB", "1e3kB", "99999999TB", "1.2.3MB", "٣MB"])
    func `refuses other sizes`(text: String) {
        #expect(parse(.size(0...Int64.max), text) == nil)
    }

    @Test(arguments: [
        ("0", Duration.zero), ("250ms", .milliseconds(250)), ("30s", .seconds(30)), ("5min", .seconds(300)),
        ("72h", .seconds(72 * 3600)), ("7d", .seconds(7 * 86_400)), ("1.5h", .seconds(5400)), ("2 h", .seconds(7200)),
    ])
    func `reads durations as PostgreSQL does`(text: String, duration: Duration) {
        #expect(parse(.duration(.zero...Duration.seconds(1_000_000)), text) == .duration(duration))
    }

    @Test(arguments: ["", "72", "1m", "1 hour", "-1s", "h", "99999999d"])
    func `refuses other durations`(text: String) {
        #expect(parse(.duration(.zero...Duration.seconds(1_000_000)), text) == nil)
    }

    @Test func `writes sizes and durations so that they read back`() {
        #expect(SizeText.write(64 << 20) == "64MB")
        #expect(SizeText.write(1000) == "1000B")
        #expect(SizeText.write(0) == "0")
        #expect(DurationText.write(.seconds(72 * 3600)) == "3d")
        #expect(DurationText.write(.seconds(90)) == "90s")
        #expect(DurationText.write(.milliseconds(1500)) == "1500ms")
    }

    @Test func `finds the allowed number that is nearest`() {
        #expect([-4, -3, 7, 10, 11].map { SettingType.integer(-3...10).nearest(to: $0) } == [-3, -3, 7, 10, 10])
        #expect(SettingType.size(1024...2048).nearest(to: .max) == 2048)
    }

    @Test func `has a name of its own for every setting`() {
        #expect(Set(Setting.all.map(\.name)).count == Setting.all.count)
        #expect(Setting.all.first == Setting(\.databaseURL) && Setting.all.last == Setting(\.logFormat))
    }

    @Test func `reads words and their synonyms`() {
        let type = SettingType.choice(["error", "warning"], synonyms: ["warn": "warning"])
        #expect(parse(type, "Error") == .text("error"))
        #expect(parse(type, "warn") == .text("warning"))
        #expect(parse(type, "warner") == nil)
    }

    @Test(arguments: [
        ("127.0.0.1:4000", "127.0.0.1", 4000), ("[::1]:80", "::1", 80), ("localhost:0", "localhost", 0),
        ("0.0.0.0:65535", "0.0.0.0", 65535),
    ])
    func `reads addresses`(text: String, host: String, port: UInt16) {
        #expect(parse(.address, text) == .address(ListenAddress(host: host, port: port)))
        #expect(ListenAddress(text)?.description == text)
    }

    @Test(arguments: [
        "", "4000", ":4000", "host", "host:", "host:65536", "host:+1", "::1:80", "[::1]", "[x]:1", "a b:1",
    ])
    func `refuses other addresses`(text: String) {
        #expect(parse(.address, text) == nil)
    }

    @Test func `takes slot names as PostgreSQL does`() {
        #expect(parse(.slotName, "tide_wire_2") == .text("tide_wire_2"))
        #expect(parse(.slotName, String(repeating: "a", count: 63)) != nil)
        for bad in ["", "Tidewire", "tide-wire", "tide wire", "ü", String(repeating: "a", count: 64)] {
            #expect(parse(.slotName, bad) == nil, "\(bad)")
        }
    }

    @Test func `takes any other name PostgreSQL would quote`() {
        #expect(parse(.identifier, "My Publication") == .text("My Publication"))
        #expect(parse(.identifier, String(repeating: "ü", count: 32)) == nil)
    }
}

@Suite(.within(minutes: 5)) struct NearestNameTests {
    @Test(arguments: [("data_dri", "data_dir"), ("lsten", "listen"), ("LOG_LEVL", "log_level"), ("sloot", "slot")])
    func `finds what was meant`(written: String, meant: String) {
        #expect(NearestName.to(written, among: Setting.all.map(\.name)) == meant)
    }

    @Test(arguments: ["", "x", "shared_buffers", "zzzz"])
    func `does not guess wildly`(written: String) {
        #expect(NearestName.to(written, among: Setting.all.map(\.name)) == nil)
    }

    @Test func `counts a swap of neighbours as one mistake`() {
        #expect(NearestName.distance("tail", "tali") == 1)
        #expect(NearestName.distance("", "abc") == 3)
        #expect(NearestName.distance("kitten", "sitting") == 3)
    }
}
