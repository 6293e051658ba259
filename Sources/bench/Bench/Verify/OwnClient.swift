import Bytes
import Crypto
import System

/// One of the verifier's own clients, without its socket: the messages that it sends, and its reactions to received
/// ones.
struct OwnClient {
    enum Line: Equatable {
        case away(until: UInt64)
        case connecting
        case upgrading
        case open
    }

    enum Channel: Equatable {
        case none
        /// A join with this ref has been sent. If no reply arrives by `until` (monotonic, in nanoseconds), the client
        /// closes its connection.
        case joining(ref: Int, until: UInt64)
        case joined(ref: Int)
        case retrying(at: UInt64)
    }

    let number: Int
    let seat: VerifySeat
    let kind: ClientLedger.Kind
    let session: String
    var line = Line.away(until: 0)
    var channel = Channel.none
    var descriptor: Int32 = -1
    var incomplete: [UInt8] = []
    var frozenUntil: UInt64 = 0
    var nextBeat: UInt64 = 0
    /// True if the client's token expires within seconds. The hub then closes its channel.
    var isExpiring = false
    private var ref = 0
    private var position: String?

    init(number: Int, seat: VerifySeat, kind: ClientLedger.Kind, session: String) {
        self.number = number
        self.seat = seat
        self.kind = kind
        self.session = session
    }

    var topic: String { "realtime:v\(number)" }

    /// Returns the next ref. A plain client restarts at 1 on each socket, like a page that is opened again. Other
    /// clients continue to count.
    mutating func nextRef() -> Int {
        ref += 1
        return ref
    }

    /// Restarts the refs of a plain client, because it has a new socket.
    mutating func beginAnew() { if !kind.goesOn { ref = 0 } }

    /// True if the hub recognizes the client when it returns, although the client does not state its position.
    private var isKnownAgain: Bool { kind == .catchUp || kind == .real }

    /// Value of the URL parameter `client_id`, by which the hub recognizes a client without a login session. Nil for
    /// other clients.
    var clientID: String? { isKnownAgain && seat.person == .anon ? session : nil }

    func token(secret: [UInt8], seconds: Int64) -> String {
        let subject = seat.person == .anon ? "" : #","sub":"\#(seat.person.id)""#
        let session = isKnownAgain && seat.person != .anon ? #","session_id":"\#(self.session)""# : ""
        let end = Clock.unixMicroseconds() / 1_000_000 + seconds
        let claims = Array(#"{"role":"\#(seat.person.role)"\#(subject)\#(session),"exp":\#(end)}"#.utf8)
        return JWT.sign(claims: claims.span, secret: secret.span)
    }

    mutating func join(token: String, now: UInt64) -> String {
        let ref = nextRef()
        channel = .joining(ref: ref, until: now + 30_000_000_000)
        let bindings = seat.bindings.map(\.request).joined(separator: ",")
        var options = ""
        if kind == .explicit {
            let resume = position.map { #","resume":"\#($0)""# } ?? ""
            options = #","tidewire":{"position":true\#(resume)}"#
        }
        return
            #"["\#(ref)","\#(ref)","\#(topic)","phx_join",{"config":{"postgres_changes":[\#(bindings)]\#(options)},"access_token":"\#(token)"}]"#
    }

    /// Returns the message that gives the channel a new token; nil if the channel is not joined.
    mutating func renewal(token: String) -> String? {
        guard case .joined(let join) = channel else { return nil }
        return #"["\#(join)","\#(nextRef())","\#(topic)","access_token",{"access_token":"\#(token)"}]"#
    }

    /// Handles a message of the hub. Returns a note of its content for `ClientLedger`, and a description of the hub's
    /// fault. Each is nil if there is none.
    mutating func hear(_ text: RawSpan, now: UInt64) -> (note: ClientLedger.Note?, trouble: String?) {
        if text.firstOffset(of: #""postgres_changes",{"#, from: 0) != nil { return (change(text), nil) }
        if text.firstOffset(of: #""system",{"#, from: 0) != nil { return (system(text), nil) }
        if text.firstOffset(of: #""phx_reply",{"#, from: 0) != nil { return reply(text, now) }
        if text.firstOffset(of: #""phx_close""#, from: 0) != nil
            || text.firstOffset(of: #""phx_error""#, from: 0) != nil
        {
            return (nil, closed(text, now))
        }
        return (nil, nil)
    }

    private mutating func closed(_ text: RawSpan, _ now: UInt64) -> String? {
        guard case .joined = channel else { return nil }
        channel = .retrying(at: now + 300_000_000)
        defer { isExpiring = false }
        return isExpiring ? nil : "the channel was closed: " + text.text.prefix(200)
    }

    private mutating func reply(_ text: RawSpan, _ now: UInt64) -> (ClientLedger.Note?, String?) {
        guard case .joining(let ref, _) = channel,
            text.extracting(0..<min(24, text.byteCount)).text.hasPrefix(#"["\#(ref)","\#(ref)","#)
        else { return (nil, nil) }
        guard text.firstOffset(of: #""status":"ok""#, from: 0) != nil else {
            channel = .retrying(at: now + 500_000_000)
            return (nil, nil)
        }
        channel = .joined(ref: ref)
        let isRecovered = text.firstOffset(of: #""recovered":true"#, from: 0) != nil
        let isRefused = text.firstOffset(of: #""recovered":false"#, from: 0) != nil
        if !isRecovered { takePosition(text) }
        if isRecovered || isRefused { return (.began(.recovered(isRecovered)), nil) }
        return (.began(.joined), nil)
    }

    private mutating func system(_ text: RawSpan) -> ClientLedger.Note? {
        if text.firstOffset(of: #""CaughtUp""#, from: 0) != nil {
            takePosition(text)
            return nil
        }
        if text.firstOffset(of: #""ChangesMissing""#, from: 0) != nil { return .told(String(text.text.suffix(300))) }
        return nil
    }

    private mutating func takePosition(_ text: RawSpan) {
        guard kind == .explicit, let start = text.firstOffset(of: #""position":""#, from: 0) else { return }
        let rest = text.extracting(start + 12..<min(start + 80, text.byteCount)).text
        position = String(rest.prefix { $0 != "\"" })
    }

    private mutating func change(_ text: RawSpan) -> ClientLedger.Note {
        takePosition(text)
        return Self.change(text)
    }

    static func change(_ text: RawSpan) -> ClientLedger.Note {
        if text.firstOffset(of: #""type":"DELETE""#, from: 0) != nil {
            guard let old = text.firstOffset(of: #""old_record":{"#, from: 0),
                let id = number(#""id":"#, text, from: old)
            else { return .garbled("a DELETE without its key: " + text.text.prefix(400)) }
            return .heard(ChangeMark(operation: .delete, number: id))
        }
        let isInsert = text.firstOffset(of: #""type":"INSERT""#, from: 0) != nil
        guard isInsert || text.firstOffset(of: #""type":"UPDATE""#, from: 0) != nil,
            let record = text.firstOffset(of: #""record":{"#, from: 0),
            let version = number(#""v":"#, text, from: record)
        else { return .garbled("no change: " + text.text.prefix(400)) }
        // The column `note` repeats the row's version. A record in which they differ is not a row that was written.
        guard let note = text.firstOffset(of: #""note":"v"#, from: record),
            text.wholeNumber(at: note + 9) == version
        else { return .garbled("a record whose values do not belong together: " + text.text.prefix(600)) }
        return .heard(ChangeMark(operation: isInsert ? .insert : .update, number: version))
    }

    private static func number(_ name: StaticString, _ text: RawSpan, from start: Int) -> Int64? {
        text.firstOffset(of: name, from: start).flatMap { text.wholeNumber(at: $0 + name.utf8CodeUnitCount) }
    }
}
