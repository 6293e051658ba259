import Bytes
import Change
import Diagnostics
import TestSupport
import Testing

@testable import Replication

/// An assembler that is talked to as a server would, and the sink it fills.
final class Conversation {
    struct Giveup: Error {}

    let sink: RecordingSink
    let directory = MemoryDirectory()
    /// The stalls the assembler waited out.
    private(set) var stalls: [StorageStall] = []
    /// After so many stalls the waiting ends.
    var patience = Int.max
    /// What the catalog answers when a table is announced.
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

    /// What a session does after an error: half a transaction is forgotten, and all is heard anew.
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

    /// Nothing the log relies on was broken.
    func expectNoBreach(_ place: SourceLocation = #_sourceLocation) {
        #expect(sink.breaches.isEmpty, sourceLocation: place)
    }
}

/// The tables the conversations speak of.
enum Table {
    static let orders: UInt32 = 16_384
    static let notes: UInt32 = 16_385
    static let audit: UInt32 = 16_386

    static func orders(xid: UInt32? = nil) -> [UInt8] {
        PgOutput.relation(
            orders, "orders", [.init("id", type: 20, isIdentity: true), .init("state"), .init("note")], xid: xid)
    }

    /// The same table after a column was added.
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

    /// Neither primary key nor identity: its rows cannot be told apart.
    static func audit(xid: UInt32? = nil) -> [UInt8] {
        PgOutput.relation(audit, "audit", identity: .nothing, [.init("line")], xid: xid)
    }
}
