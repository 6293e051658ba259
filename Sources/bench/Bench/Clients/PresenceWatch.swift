import Bytes

/// Check of the clients' views of presence. A view is the set of presences that a client has received for a topic. It
/// is stored as sums: a presence that joins is added, one that leaves is subtracted. A view is correct if it has the
/// expected number of presences, with the expected keys.
///
/// All members of a topic receive the same bytes, so each message is parsed only once for all of them.
struct PresenceWatch {
    struct View: Equatable {
        var count: Int64 = 0
        /// Sum of the hashes of the presence keys.
        var keys: UInt64 = 0
        /// Sum of the hashes of the presence keys together with the presences' refs.
        var presences: UInt64 = 0

        mutating func add(_ other: View) {
            count += other.count
            keys &+= other.keys
            presences &+= other.presences
        }

        mutating func remove(_ other: View) {
            count -= other.count
            keys &-= other.keys
            presences &-= other.presences
        }

        func isOfSameKeys(_ other: View) -> Bool { count == other.count && keys == other.keys }
    }

    enum Kind {
        case state, difference
    }

    private let keys: [UInt64]
    private var views: [View]
    /// Expected view, with which the clients' views are compared.
    private(set) var goal = View()
    /// Number of clients whose views are checked, counted from the first client.
    private var watching: Int
    /// Number of checked views that are not correct.
    private(set) var unsettled = 0
    private var understood: [(kind: Kind, bytes: [UInt8], change: View)] = []
    private var oldest = 0

    /// Maximum number of messages whose parsed content is kept. One read receives several messages, and the reads of
    /// the next clients receive the same ones.
    private static let remembered = 256

    init(_ text: ClientText, clients: Range<Int>) {
        keys = clients.map { Self.number(Array(text.text(client: $0).utf8)) }
        views = Array(repeating: View(), count: clients.count)
        watching = clients.count
    }

    var isSettled: Bool { unsettled == 0 }

    /// Number of checked views that differ from the view of the first client.
    var differing: Int {
        let first = views[0]
        return views[..<watching].count { $0 != first }
    }

    // MARK: Expected views

    mutating func expect(_ client: Int) {
        goal.count += 1
        goal.keys &+= keys[client]
    }

    mutating func expectNoMore(_ client: Int) {
        goal.count -= 1
        goal.keys &-= keys[client]
    }

    /// Checks the views of the first `count` clients against a changed expected view.
    mutating func settle(watching count: Int) {
        watching = count
        unsettled = views[..<count].count { !$0.isOfSameKeys(goal) }
    }

    // MARK: Received messages

    /// Applies a presence message to a client's view. Returns false if the message cannot be parsed.
    mutating func see(_ client: Int, _ kind: Kind, _ bytes: RawSpan) -> Bool {
        guard let change = change(kind, bytes) else { return false }
        let before = views[client].isOfSameKeys(goal)
        if kind == .state { views[client] = View() }
        views[client].add(change)
        let after = views[client].isOfSameKeys(goal)
        if client < watching, before != after { unsettled += after ? -1 : 1 }
        return true
    }

    private mutating func change(_ kind: Kind, _ bytes: RawSpan) -> View? {
        for place in understood.indices.reversed() where understood[place].bytes.count == bytes.byteCount {
            let known = understood[place].bytes
            let isSame = known.rawBytes.equals(bytes)
            if isSame, understood[place].kind == kind { return understood[place].change }
        }
        do throws(ByteError) {
            let change = try kind == .state ? Self.state(bytes) : Self.difference(bytes)
            remember((kind, bytes.copied(), change))
            return change
        } catch {
            return nil
        }
    }

    private mutating func remember(_ entry: (Kind, [UInt8], View)) {
        if understood.count < Self.remembered {
            understood.append(entry)
        } else {
            understood[oldest] = entry
            oldest = (oldest + 1) % Self.remembered
        }
    }

    private static func state(_ bytes: RawSpan) throws(ByteError) -> View {
        var scanner = JSONScanner(bytes)
        return try presences(&scanner)
    }

    private static func difference(_ bytes: RawSpan) throws(ByteError) -> View {
        var scanner = JSONScanner(bytes)
        var change = View()
        try expect(.beginObject, &scanner)
        while try scanner.next() == .name {
            let isJoins = scanner.equals("joins")
            let some = try presences(&scanner)
            if isJoins { change.add(some) } else { change.remove(some) }
        }
        return change
    }

    /// Parses `{"key":{"metas":[{"phx_ref":"…",…},…]},…}` and returns the sums over its presences.
    private static func presences(_ scanner: inout JSONScanner) throws(ByteError) -> View {
        var view = View()
        try expect(.beginObject, &scanner)
        while try scanner.next() == .name {
            let key = number(scanner.tokenBytes.copied())
            try expect(.beginObject, &scanner)
            while try scanner.next() == .name {
                guard scanner.equals("metas") else {
                    try scanner.skip(try scanner.next())
                    continue
                }
                try expect(.beginArray, &scanner)
                while try scanner.next() == .beginObject {
                    let ref = try self.ref(&scanner)
                    view.add(View(count: 1, keys: key, presences: mixed(key &+ ref)))
                }
            }
        }
        return view
    }

    /// Returns the ref of a presence whose opening brace has been read; 0 if it has none.
    private static func ref(_ scanner: inout JSONScanner) throws(ByteError) -> UInt64 {
        var ref: UInt64 = 0
        while try scanner.next() == .name {
            let isRef = scanner.equals("phx_ref")
            let token = try scanner.next()
            if isRef { ref = number(scanner.tokenBytes.copied()) } else { try scanner.skip(token) }
        }
        return ref
    }

    private static func expect(_ token: JSONToken, _ scanner: inout JSONScanner) throws(ByteError) {
        guard try scanner.next() == token else { throw ByteError(expected: "a presence", offset: scanner.offset) }
    }

    /// Returns the FNV-1a hash of a presence key or ref, mixed so that sums of such hashes are unlikely to collide.
    private static func number(_ bytes: [UInt8]) -> UInt64 {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
        return mixed(hash)
    }

    private static func mixed(_ value: UInt64) -> UInt64 {
        var value = (value ^ value >> 31) &* 0x7fb5_d329_728e_a185
        value = (value ^ value >> 27) &* 0x81da_def4_bc2d_d44d
        return value ^ value >> 33
    }
}

/// Result of a command by which clients tracked or left a presence.
struct PresenceOutcome: Equatable {
    /// Number of presence messages, differences and states, that all clients together received.
    var messages: Int64
    var bytes: Int64
    /// Nanoseconds from the first request until all views were correct.
    var nanoseconds: Int64
    /// Number of clients whose view of presence is not correct.
    var unsettled: Int64
    /// Number of clients whose view of presence differs from the first client's.
    var differing: Int64
    var malformed: Int64
    var closed: Int64

    var isFaultless: Bool { unsettled == 0 && differing == 0 && malformed == 0 && closed == 0 }

    init?(_ answer: WorkerAnswer) {
        guard let messages = answer.numbers["received"], let nanoseconds = answer.numbers["ns"],
            let unsettled = answer.numbers["unsettled"], let differing = answer.numbers["differing"],
            let malformed = answer.numbers["malformed"], let closed = answer.numbers["closed"],
            let bytes = answer.numbers["bytes"]
        else { return nil }
        (self.messages, self.bytes, self.nanoseconds) = (messages, bytes, nanoseconds)
        (self.unsettled, self.differing, self.malformed, self.closed) = (unsettled, differing, malformed, closed)
    }
}
