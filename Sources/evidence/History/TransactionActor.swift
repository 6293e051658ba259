import Bytes
import Change
import EventLog

/// Statement, made by the application, of who is responsible for the changes of a transaction. The SQL function
/// `tidewire.actor` (`sql/actors`) writes it as a message into the transaction. It applies to the changes after it.
public struct TransactionActor: Sendable, Equatable {
    public static let prefix = Array("tidewire.actor".utf8)

    /// JSON object of the message, masked by the log's rules.
    public var content: [UInt8]

    /// Name of the actor; nil if the message does not have the form that `tidewire.actor` writes.
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

    /// True if the content is exactly one JSON object, so that it can be embedded in other JSON.
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

    /// Reads the statement from a change; nil if the change is no message of `tidewire.actor`.
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

/// Tracker of the actor that applies to each change. Readers pass it the parts of transactions in order; they may leave
/// parts out.
struct ActorTrace {
    private var xid: UInt32?
    private var nextIndex: UInt32 = 0
    private(set) var actor: TransactionActor?

    /// Begins a part of a transaction. If earlier parts of the transaction were skipped, reads the log to find their
    /// actor.
    mutating func begin(_ part: borrowing TransactionPart, at entry: EventLogEntry, in log: HistoryLog) throws {
        if part.firstIndex == 0 {
            actor = nil
        } else if xid != part.info.xid || nextIndex != part.firstIndex {
            actor = try Self.actor(before: entry, part.firstIndex, in: log)
        }
        xid = part.info.xid
        nextIndex = part.firstIndex + entry.changeCount
    }

    /// Applies one change of the part. Returns true if it is a statement of an actor, which applies to the changes
    /// after it.
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
