import Bytes

/// Presences in one topic, sorted as they are written: by key, then by ref.
///
/// Entries also include presences that were added or removed since members were last sent a difference. So the topic
/// can write both what members know and the next difference.
struct PresenceTopic: Sendable {
    enum Standing: UInt8 {
        /// The topic's members have been sent the presence, which still exists.
        case told
        /// The presence was added, and the topic's members have not been sent it.
        case coming
        /// The presence was removed, and the topic's members have not been sent its removal.
        case going
        /// The presence was added and removed, and the topic's members have been sent neither.
        case passing
    }

    struct Entry: Sendable {
        let key: [UInt8]
        let meta: PresenceMeta
        var standing: Standing
    }

    let name: TopicName
    private(set) var entries: [Entry] = []
    /// Number of presences that the topic has now.
    private(set) var presentCount = 0
    /// True if a presence was added or removed since members were last sent a difference.
    private(set) var isChanged = false

    init(_ name: TopicName) { self.name = name }

    mutating func insert(key: [UInt8], _ meta: PresenceMeta) {
        let place = place(key, meta.ref)
        assert(place == entries.count || entries[place].meta.ref != meta.ref, "two presences with one ref")
        entries.insert(Entry(key: key, meta: meta, standing: .coming), at: place)
        presentCount += 1
        isChanged = true
    }

    mutating func remove(key: [UInt8], _ ref: PresenceRef) {
        let place = place(key, ref)
        precondition(place < entries.count && entries[place].meta.ref == ref, "a presence that is not in its topic")
        switch entries[place].standing {
        case .told: entries[place].standing = .going
        case .coming: entries[place].standing = .passing
        case .going, .passing: preconditionFailure("a presence that has gone before")
        }
        presentCount -= 1
        precondition(presentCount >= 0, "more have gone than came")
        isChanged = true
    }

    func meta(key: [UInt8], _ ref: PresenceRef) -> PresenceMeta {
        let place = place(key, ref)
        precondition(place < entries.count && entries[place].meta.ref == ref, "a presence that is not in its topic")
        return entries[place].meta
    }

    /// Records that the topic's members have been sent all changes.
    mutating func settle() {
        var kept = 0
        for index in entries.indices {
            let standing = entries[index].standing
            if standing == .going || standing == .passing { continue }
            if kept != index { entries[kept] = entries[index] }
            entries[kept].standing = .told
            kept += 1
        }
        entries.removeSubrange(kept...)
        if entries.capacity > 64, entries.count < entries.capacity / 4 { entries = Array(entries[...]) }
        isChanged = false
    }

    /// Returns the index of the presence with this key and ref, or the index at which to insert it.
    private func place(_ key: [UInt8], _ ref: PresenceRef) -> Int {
        var low = 0
        var high = entries.count
        while low < high {
            let middle = (low + high) / 2
            let order = Self.order(entries[middle].key, key)
            if order < 0 || order == 0 && entries[middle].meta.ref < ref { low = middle + 1 } else { high = middle }
        }
        return low
    }

    private static func order(_ left: [UInt8], _ right: [UInt8]) -> Int {
        // SAFETY: any byte is a valid UInt8, and both spans live for the call.
        unsafe left.span.bytes.order(right.span.bytes)
    }

    // MARK: Writing

    /// Appends the presences that the topic's members have been sent, as an object with the keys as names.
    func appendTold(to writer: inout ByteWriter) {
        append(to: &writer) { $0 == .told || $0 == .going }
    }

    /// Appends the `presence_diff` object: joins and leaves since the topic's members were last sent a difference.
    /// Clients process joins before leaves, and some keep only the first of a key's metas. So presences that still
    /// exist precede those that were added and removed.
    func appendDiff(to writer: inout ByteWriter) {
        writer.append("{\"joins\":{")
        append(.coming, to: &writer)
        writer.append("},\"leaves\":{")
        append(.going, to: &writer)
        writer.append("}}")
    }

    /// Appends, for each key, the presences whose `Standing` is the given one, then those that were added and removed.
    private func append(_ standing: Standing, to writer: inout ByteWriter) {
        var isFirst = true
        var begin = 0
        while begin < entries.count {
            var end = begin + 1
            while end < entries.count, entries[end].key == entries[begin].key { end += 1 }
            var isFirstOfKey = true
            append(standing, begin..<end, &isFirst, &isFirstOfKey, to: &writer)
            append(.passing, begin..<end, &isFirst, &isFirstOfKey, to: &writer)
            if !isFirstOfKey { writer.append("]}") }
            begin = end
        }
    }

    private func append(
        _ standing: Standing, _ range: Range<Int>, _ isFirst: inout Bool, _ isFirstOfKey: inout Bool,
        to writer: inout ByteWriter
    ) {
        for index in range where entries[index].standing == standing {
            if !isFirst { writer.append(UInt8(ascii: ",")) }
            if isFirstOfKey {
                writer.append(entries[index].key)
                writer.append(":{\"metas\":[")
            }
            writer.append(entries[index].meta.json)
            isFirst = false
            isFirstOfKey = false
        }
    }

    @inline(__always)
    private func append(to writer: inout ByteWriter, where isWanted: (Standing) -> Bool) {
        writer.append(UInt8(ascii: "{"))
        var last: Int?
        for index in entries.indices where isWanted(entries[index].standing) {
            if let last, entries[last].key == entries[index].key {
                writer.append(UInt8(ascii: ","))
            } else {
                if last != nil { writer.append("]},") }
                writer.append(entries[index].key)
                writer.append(":{\"metas\":[")
            }
            writer.append(entries[index].meta.json)
            last = index
        }
        writer.append(last == nil ? "}" : "]}}")
    }
}
