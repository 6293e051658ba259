import Bytes
import Change
import Diagnostics
import System

/// Unfinished transaction that PostgreSQL streams. Its changes wait in a file until the commit, because the transaction
/// may still be rolled back.
///
/// A record is: length u32 of the rest · subtransaction u32 · key of the new row u64 · key of the old row u64 · the
/// change as `TransactionCodec` stores it. The file is used during one connection only. After a restart, PostgreSQL
/// streams the transaction again from its first change.
final class SpooledTransaction {
    let xid: UInt32
    private let file: any StorageFile
    private var written: UInt64 = 0
    private(set) var aborted: Set<UInt32> = []
    private(set) var schemas: [UInt64: Schema] = [:]
    /// Schema of the previous row. The next row nearly always has the same one.
    private var last: Schema?
    /// Name of the node on which a replicated transaction was first committed; empty if it is not replicated.
    private(set) var origin = ""

    init(xid: UInt32, file: any StorageFile) {
        self.xid = xid
        self.file = file
    }

    var bytes: UInt64 { written }

    func uses(_ schema: Schema) {
        if last === schema { return }
        last = schema
        if schemas[schema.fingerprint] == nil { schemas[schema.fingerprint] = schema }
    }

    func setOrigin(_ name: String) {
        if origin.isEmpty { origin = name }
    }

    func abort(_ subtransaction: UInt32) {
        assert(subtransaction != xid, "a transaction that is rolled back as a whole leaves the spool")
        aborted.insert(subtransaction)
    }

    func append(_ records: RawSpan) throws(SystemError) {
        try file.write(records, at: written)
        written += UInt64(records.byteCount)
    }

    /// Calls `body` for every change, in order, except those that were rolled back to a savepoint. Only a part of the
    /// file is in memory at a time.
    func replay(
        _ body: (_ change: RawSpan, _ schema: Schema?, _ newKey: UInt64, _ oldKey: UInt64) throws -> Void
    ) throws {
        var chunk = ByteWriter(capacity: 1 << 20)
        var position: UInt64 = 0
        while true {
            let wanted = Int(min(UInt64(max(1 << 20, chunk.count * 2) - chunk.count), written - position))
            // SAFETY: the file writes into the room it is given and says how much.
            let got = unsafe try chunk.append(upTo: wanted) { buffer throws(SystemError) in
                unsafe try file.read(into: buffer, at: position)
            }
            guard got == wanted else {
                throw ByteError(expected: "the whole of a spooled transaction", offset: chunk.count)
            }
            position += UInt64(got)
            let used = try replayWhole(chunk.bytes, body)
            chunk.dropFirst(used)
            if position == written, chunk.isEmpty { return }
            if position == written, used == 0 { throw ByteError(expected: "a whole record", offset: chunk.count) }
        }
    }

    private func replayWhole(
        _ bytes: RawSpan, _ body: (RawSpan, Schema?, UInt64, UInt64) throws -> Void
    ) throws -> Int {
        var reader = ByteReader(bytes)
        while reader.remaining >= 4 {
            let start = reader.offset
            let length = Int(try reader.littleUInt32())
            guard reader.remaining >= length else { return start }
            let subtransaction = try reader.littleUInt32()
            let newKey = try reader.littleUInt64()
            let oldKey = try reader.littleUInt64()
            let change = try reader.span(length - 20)
            if !aborted.contains(subtransaction) { try body(change, schema(of: change), newKey, oldKey) }
        }
        return reader.offset
    }

    private func schema(of change: RawSpan) throws(ByteError) -> Schema? {
        var reader = ByteReader(change)
        try reader.skip(8)
        let fingerprint = try reader.littleUInt64()
        if let last, last.fingerprint == fingerprint { return last }
        guard fingerprint != 0, let schema = schemas[fingerprint] else { return nil }
        last = schema
        return schema
    }
}

/// Directory of the spool files. It is emptied at every connection.
struct TransactionSpool: ~Copyable {
    private let directory: any StorageDirectory
    private let maximum: Int
    private var open: [UInt32: SpooledTransaction] = [:]
    private var buffer = ByteWriter(capacity: 64 << 10)

    struct TooMany: Error {}

    init(directory: any StorageDirectory, maximum: Int) {
        self.directory = directory
        self.maximum = maximum
    }

    mutating func removeAll() throws(SystemError) {
        open = [:]
        buffer.removeAll()
        for name in try directory.names() where name.hasSuffix(".spool") { try directory.remove(name) }
    }

    mutating func begin(_ xid: UInt32) throws -> SpooledTransaction {
        let isFlushed = buffer.isEmpty
        assert(isFlushed, "a block begins after the changes of the one before are in their file")
        if let transaction = open[xid] { return transaction }
        guard open.count < maximum else { throw TooMany() }
        let transaction = SpooledTransaction(xid: xid, file: try directory.open("\(xid).spool", for: .creating))
        open[xid] = transaction
        return transaction
    }

    func transaction(_ xid: UInt32) -> SpooledTransaction? { open[xid] }

    mutating func end(_ xid: UInt32) throws(SystemError) {
        let isFlushed = buffer.isEmpty
        assert(isFlushed, "a transaction ends outside a block")
        guard open.removeValue(forKey: xid) != nil else { return }
        try directory.remove("\(xid).spool")
    }

    /// Adds a change of a row to the buffer in memory.
    mutating func add(
        to transaction: SpooledTransaction, subtransaction: UInt32, newKey: UInt64, oldKey: UInt64,
        _ write: (inout ByteWriter) -> Void
    ) {
        let start = buffer.count
        buffer.append(little: UInt32(0))
        buffer.append(little: subtransaction)
        buffer.append(little: newKey)
        buffer.append(little: oldKey)
        write(&buffer)
        let length = buffer.count - start
        assert(length >= 24 + TransactionCodec.changeHeadBytes, "a record holds a whole change")
        buffer.set(little: UInt32(length - 4), at: start)
    }

    var isFull: Bool { buffer.count >= Limits.streamedTransactionBufferBytes }

    /// Writes the buffer to the file. If the disk fails, the call can be repeated.
    mutating func flush(_ transaction: SpooledTransaction) throws(StorageStall) {
        guard !buffer.isEmpty else { return }
        let isOpen = open[transaction.xid] === transaction
        assert(isOpen, "changes are written for a transaction of this spool")
        do throws(SystemError) {
            try transaction.append(buffer.bytes)
        } catch {
            throw StorageStall(
                operation: error.operation, path: error.subject, reason: error.reason,
                hint: "free space where streamed transactions wait for their commit")
        }
        buffer.removeAll()
        buffer.shrink(to: 4 << 20)
    }
}
