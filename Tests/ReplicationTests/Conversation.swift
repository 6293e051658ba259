import Bytes
import Change
import Diagnostics
import TestSupport
import Testing

@testable import Replication

/// Assembler that receives a server's messages, with the sink into which it writes.
final class Conversation {
    struct Giveup: Error {}

    let sink: RecordingSink
    let directory = MemoryDirectory()
    /// Failures of the disk for which the assembler waited.
    private(set) var stalls: [StorageStall] = []
    /// Number of disk failures after which the assembler gives up.
    var patience = Int.max
    /// Primary keys that the catalog returns when the stream describes a table, by table name.
    var primaryKeys: [UInt32: Set<String>] = [:]
    private let maximumStreamed: Int
    private let maximumSchemas: Int
    private var assembler: TransactionAssembler?
    let metrics = ProjectMetrics()

    init(at position: LSN = .zero, maximumStreamed: Int = 8, maximumSchemas: Int = 100) {
        sink = RecordingSink(at: position)
        self.maximumStreamed = maximumStreamed
        self.maximumSchemas = maximumSchemas
        connect()
    }

    private func connect() {
        var spool = TransactionSpool(directory: directory, maximum: maximumStreamed)
        do { try spool.removeAll() } catch { Issue.record("the spool was not cleared: \(error)") }
        assembler = TransactionAssembler(
            spool: spool, maximumSchemas: maximumSchemas, primaryKey: { [unowned self] oid in primaryKeys[oid] ?? [] },
            metrics: metrics, now: { 0 })
    }

    /// Connects again, as a session does after an error: the sink drops the unfinished transaction, and the server
    /// sends everything again.
    func reconnect() throws {
        if isInTransaction { try sink.abandon() }
        connect()
    }

    var isInTransaction: Bool { assembler?.isInTransaction ?? false }

    func hear(_ messages: [UInt8]...) throws {
        for message in messages { try hear(one: message) }
    }

    func hear(one message: [UInt8]) throws {
        try assembler?.receive(message.span.bytes, into: sink) { stall in
            stalls.append(stall)
            if stalls.count >= patience { throw Giveup() }
        }
    }

    /// Checks that the assembler made no call that a log must not receive.
    func expectNoBreach(_ place: SourceLocation = #_sourceLocation) {
        #expect(sink.breaches.isEmpty, sourceLocation: place)
    }
}

/// Tables that the tests use.
enum Table {
    static let orders: UInt32 = 16_384
    static let notes: UInt32 = 16_385
    static let audit: UInt32 = 16_386

    static func orders(xid: UInt32? = nil) -> [UInt8] {
        PgOutput.relation(
            orders, "orders", [.init("id", type: 20, isIdentity: true), .init("state"), .init("note")], xid: xid)
    }

    /// Returns the message for the same table with an additional column.
    static func wideOrders(xid: UInt32? = nil) -> [UInt8] {
        PgOutput.relation(
            orders, "orders",
            [.init("id", type: 20, isIdentity: true), .init("state"), .init("note"), .init("total", type: 1700)],
            xid: xid)
    }

    static func notes(xid: UInt32? = nil) -> [UInt8] {
        PgOutput.relation(
            notes, "notes", identity: .full, [.init("id", isIdentity: true), .init("body", isIdentity: true)], xid: xid)
    }

    /// Returns the message for a table without primary key and identity: its rows cannot be told apart.
    static func audit(xid: UInt32? = nil) -> [UInt8] {
        PgOutput.relation(audit, "audit", identity: .nothing, [.init("line")], xid: xid)
    }
}
