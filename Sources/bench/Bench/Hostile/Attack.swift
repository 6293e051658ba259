import System

/// Attack on a hub that is possible with the project's public key. Each attack does as much as the hub permits.
enum Attack: String, CaseIterable {
    /// Filters that take long to evaluate on large rows: ten channels, each with 128 filters.
    case costlyFilters = "costly filters"
    /// Filters with very many values: sixty channels, each with 128 lists of 15 values.
    case longLists = "long lists"
    case halfMessages = "half messages"
    case halfRequests = "half requests"
    /// Clients that bind every change and read nothing.
    case slowReaders = "slow readers"
    /// Joins and leaves as fast as the hub answers.
    case joins = "joins"
    /// Broadcasts in one channel, as fast as the hub accepts them.
    case talk = "talk"
    /// Bytes that belong to no protocol. After each failure the attacker connects again.
    case garbage = "garbage"

    /// True if the attacking clients read what the hub sends.
    var reads: Bool { self != .slowReaders }

    /// Returns the bytes that an attacker's socket sends after it has connected.
    func opening(_ number: Int, _ target: HostileTarget) -> [UInt8] {
        let upgrade = Array(
            """
            GET \(target.path) HTTP/1.1\r
            Host: localhost\r
            Upgrade: websocket\r
            Connection: Upgrade\r
            Sec-WebSocket-Version: 13\r
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r
            \r

            """.utf8)
        switch self {
        case .costlyFilters:
            return upgrade + joins(10) { channel in target.bindings(128) { Self.costly(number, channel * 128 + $0) } }
        case .longLists:
            // More values than a connection may have.
            return upgrade + joins(60) { channel in target.bindings(128) { Self.long(channel * 128 + $0) } }
        case .halfMessages: return upgrade + Self.frameHead(4_900_000) + [UInt8](repeating: 0x20, count: 2_450_000)
        case .halfRequests:
            let head =
                "POST /api/broadcast HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \(target.token)\r\n"
                + "Content-Type: application/json\r\nContent-Length: 7900000\r\n\r\n"
            return Array(head.utf8) + [UInt8](repeating: 0x20, count: 3_950_000)
        case .slowReaders: return upgrade + joins(1) { _ in target.bindings(1) { _ in nil } }
        case .joins: return upgrade
        case .talk: return upgrade + joins(1) { _ in "" }
        case .garbage: return (0..<4096).map { UInt8(truncatingIfNeeded: $0 &* 167 &+ number) }
        }
    }

    /// Returns the bytes to send after the hub has accepted all earlier ones. `round` counts these calls.
    func next(_ round: Int, _ target: HostileTarget) -> [UInt8] {
        switch self {
        case .joins:
            let topic = "realtime:storm\(round % 50)"
            return Self.frame(target.join(topic, target.bindings(1) { _ in "id=eq.\(round)" }))
                + Self.frame(#"["1","2","\#(topic)","phx_leave",{}]"#)
        case .talk:
            let text = String(repeating: "x", count: 1000)
            return Self.frame(
                #"["1","3","realtime:hostile0","broadcast",{"type":"broadcast","event":"e","payload":{"x":"\#(text)"}}]"#
            )
        default: return []
        }
    }

    private func joins(_ count: Int, _ bindings: (Int) -> String) -> [UInt8] {
        (0..<count).flatMap { Self.frame(HostileTarget.join("realtime:hostile\($0)", bindings($0))) }
    }

    /// Returns a filter that is costly to evaluate. All filters differ, so that the hub has to evaluate each one.
    private static func costly(_ number: Int, _ binding: Int) -> String {
        "or=(" + (0..<50).map { "title.like.%a%a%a%a%\(number)x\(binding)x\($0)" }.joined(separator: ",") + ")"
    }

    private static func long(_ binding: Int) -> String {
        "id=in.(" + (0..<15).map { "\(binding * 15 + $0 + 1_000_000_000)" }.joined(separator: ",") + ")"
    }

    // MARK: Frames

    /// Returns a WebSocket frame with a mask of zeros, which the protocol allows.
    private static func frame(_ text: String) -> [UInt8] { frameHead(text.utf8.count) + Array(text.utf8) }

    private static func frameHead(_ count: Int) -> [UInt8] {
        let length: [UInt8] =
            switch count {
            case ..<126: [0x80 | UInt8(count)]
            case ..<65536: [0x80 | 126] + Self.bytes(count, 2)
            default: [0x80 | 127] + Self.bytes(count, 8)
            }
        return [0x81] + length + [0, 0, 0, 0]
    }

    private static func bytes(_ number: Int, _ count: Int) -> [UInt8] {
        (0..<count).map { UInt8(truncatingIfNeeded: number >> (8 * (count - 1 - $0))) }
    }
}

/// Target of an attack.
struct HostileTarget: Sendable {
    var port: UInt16
    var path: String
    var token: String
    var table: String

    func bindings(_ count: Int, _ filter: (Int) -> String?) -> String {
        (0..<count).map { number in
            let filter = filter(number).map { #","filter":"\#($0)""# } ?? ""
            return #"{"event":"*","schema":"public","table":"\#(table)"\#(filter)}"#
        }.joined(separator: ",")
    }

    func join(_ topic: String, _ bindings: String) -> String { Self.join(topic, bindings) }

    static func join(_ topic: String, _ bindings: String) -> String {
        #"["1","1","\#(topic)","phx_join",{"config":{"postgres_changes":[\#(bindings)]}}]"#
    }
}
