import Bytes

/// What each of many clients sees of who is present, as sums: what came is added, what went is taken away, and a view is
/// right when it has as many presences as there should be, of the keys that should be there.
///
/// All members of a topic are told the same bytes, so what they say is worked out once and not once for each.
struct PresenceWatch {
    struct View: Equatable {
        var count: Int64 = 0
        /// Sums of numbers made from keys, and from keys and refs.
        var keys: UInt64 = 0
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
    private(set) var goal = View()
    /// The first so many clients are looked at.
    private var watching: Int
    private(set) var unsettled = 0
    private var understood: [(kind: Kind, bytes: [UInt8], change: View)] = []
    private var oldest = 0

    /// One read brings several messages, and the next client's brings the same.
    private static let remembered = 256

    init(_ text: ClientText, clients: Range<Int>) {
        keys = clients.map { Self.number(Array(text.text(client: $0).utf8)) }
        views = Array(repeating: View(), count: clients.count)
        watching = clients.count
    }

    var isSettled: Bool { unsettled == 0 }

    /// Of the views that are looked at, those that are not the same as the first.
    var differing: Int {
        let first = views[0]
        return views[..<watching].count { $0 != first }
    }

    // MARK: What should be seen

    mutating func expect(_ client: Int) {
        goal.count += 1
        goal.keys &+= keys[client]
    }

    mutating func expectNoMore(_ client: Int) {
        goal.count -= 1
        goal.keys &-= keys[client]
    }

    /// After what is expected has changed.
    mutating func settle(watching count: Int) {
        watching = count
        unsettled = views[..<count].count { !$0.isOfSameKeys(goal) }
    }

    // MARK: What is seen

    /// False when it cannot be read.
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
            // SAFETY: any byte is a valid UInt8, and the array outlives the call.
            let isSame = unsafe known.span.bytes.equals(bytes)
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

    /// `{"key":{"metas":[{"phx_ref":"…",…},…]},…}`
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

    /// Of a meta whose brace was read; 0 when it has none.
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

    /// FNV-1a, stirred so that sums of such numbers do not meet by chance.
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

/// What came of tracking or leaving.
struct PresenceOutcome: Equatable {
    /// Differences and states that came, to all clients together.
    var messages: Int64
    var bytes: Int64
    /// From the first one's asking until all views were right.
    var nanoseconds: Int64
    /// Views that are not what they should be.
    var unsettled: Int64
    /// Views that are not the same as the first.
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
