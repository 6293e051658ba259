import Bytes
import Change
import EventLog

/// Statement of an application who makes the changes of a transaction: a message that `tidewire.actor` (`sql/actors`)
/// wrote into the transaction. It counts for the changes after it.
public struct TransactionActor: Sendable, Equatable {
    public static let prefix = Array("tidewire.actor".utf8)

    /// JSON object as the message has it, in masked form.
    public var content: [UInt8]

    /// Name of the actor; nil if the message is not what `tidewire.actor` writes.
    public var name: String? { Self.member("actor", of: content) }

    private static func member(_ wanted: String, of json: [UInt8]) -> String? {
        do throws(ByteError) {
            var scanner = JSONScanner(json.rawBytes)
            guard try scanner.next() == .beginObject else { return nil }
            while try scanner.next() == .name {
                let name = scanner.text
                let value = try scanner.next()
                if name == wanted { return value == .string ? scanner.text : nil }
                try scanner.skip(value)
            }
            return nil
        } catch {
            return nil
        }
    }

    /// True if the content is one JSON object, so that it can stand in other JSON.
    public var isObject: Bool {
        do throws(ByteError) {
            var scanner = JSONScanner(content.rawBytes)
            let first = try scanner.next()
            guard first == .beginObject else { return false }
            try scanner.skip(first)
            return try scanner.next() == .end
        } catch {
            return false
        }
    }

    init(content: [UInt8]) { self.content = content }

    /// Takes the statement from a change; nil if the change is another one.
    init?(_ change: borrowing Change) {
        guard change.operation == .message, change.options & 1 != 0 else { return nil }
        let prefix = change.messagePrefix
        guard prefix.byteCount == Self.prefix.count,
            Self.prefix.indices.allSatisfy({ prefix.byte($0) == Self.prefix[$0] })
        else { return nil }
        content = change.messageContent.copied()
    }

    func masked(by masking: Masking) -> TransactionActor {
        TransactionActor(content: masking.shown(content: content, prefix: String(decoding: Self.prefix, as: UTF8.self)))
    }
}

/// Finder of the actor of each change, for readers that see the parts of transactions in order, or only some of them.
struct ActorTrace {
    private var xid: UInt32?
    private var nextIndex: UInt32 = 0
    private(set) var actor: TransactionActor?

    /// Begins a part. Parts before it that were skipped are read for their actor.
    mutating func begin(_ part: borrowing TransactionPart, at entry: EventLogEntry, in log: HistoryLog) throws {
        if part.firstIndex == 0 {
            actor = nil
        } else if xid != part.info.xid || nextIndex != part.firstIndex {
            actor = try Self.actor(before: entry, part.firstIndex, in: log)
        }
        xid = part.info.xid
        nextIndex = part.firstIndex + entry.changeCount
    }

    /// Takes a change; true if it names another actor for the changes from here on.
    @discardableResult
    mutating func take(_ change: borrowing Change) -> Bool {
        guard change.operation == .message, let found = TransactionActor(change) else { return false }
        actor = found
        return true
    }

    private static func actor(
        before entry: EventLogEntry, _ index: UInt32, in log: HistoryLog
    ) throws -> TransactionActor? {
        guard entry.offset >= UInt64(index) else { return nil }
        let first = entry.offset - UInt64(index)
        guard let oldest = try log.segments().first?.firstOffset, oldest <= first else { return nil }
        var reader = try EventLogReader(directory: log.directory, from: .offset(first))
        var trace = ActorTrace()
        while try reader.next() {
            if reader.entry.offset >= entry.offset { break }
            if reader.entry.kind == .transaction { try trace.take(all: reader.payload) }
        }
        return trace.actor
    }

    private mutating func take(all payload: RawSpan) throws(ByteError) {
        var part = try TransactionPart(payload)
        while let change = try part.next() { take(change) }
    }
}
