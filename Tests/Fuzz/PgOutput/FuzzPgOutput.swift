import Bytes
import Change
import Diagnostics
import FuzzSupport
import TestSupport

@testable import Replication

@_cdecl("LLVMFuzzerInitialize")
public func initialize(_ count: UnsafeMutablePointer<CInt>, _ arguments: UnsafeRawPointer) -> CInt {
    writeSeeds((conversations + [CapturedStream.messages]).map(joined))
    return 0
}

/// Fuzz target of the assembler. Input: messages, each after its length in two bytes, as a server might send them on
/// several connections.
@_cdecl("LLVMFuzzerTestOneInput")
public func test(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let server = FuzzedServer()
    for message in messages(input(start, count)) { server.say(message) }
    let breaches = server.sink.breaches
    precondition(breaches.isEmpty, "the sink's contract was broken: \(breaches)")
    return 0
}

/// Assembler and its sink. After an error, both drop the unfinished transaction and connect again, as the hub does.
private final class FuzzedServer {
    struct Giveup: Error {}

    let sink = RecordingSink()
    private let directory = MemoryDirectory()
    private var assembler: TransactionAssembler?

    init() { connect() }

    private func connect() {
        var spool = TransactionSpool(directory: directory, maximum: 4)
        do { try spool.removeAll() } catch { preconditionFailure("memory does not fail") }
        // A table with an even OID has its column `id` as primary key.
        assembler = TransactionAssembler(
            spool: spool, maximumSchemas: 16, primaryKey: { $0 % 2 == 0 ? ["id"] : [] },
            metrics: ProjectMetrics())
    }

    func say(_ message: [UInt8]) {
        do {
            try assembler?.receive(message.span.bytes, into: sink) { _ in throw Giveup() }
        } catch {
            if assembler?.isInTransaction == true { try? sink.abandon() }
            connect()
        }
    }
}

private func messages(_ bytes: [UInt8]) -> [[UInt8]] {
    var messages: [[UInt8]] = []
    var rest = bytes[...]
    while let high = rest.popFirst(), let low = rest.popFirst() {
        let message = rest.prefix(Int(high) << 8 | Int(low))
        rest = rest.dropFirst(message.count)
        messages.append(Array(message))
    }
    return messages
}

private func joined(_ messages: [[UInt8]]) -> [UInt8] {
    messages.flatMap { [UInt8($0.count >> 8), UInt8($0.count & 255)] + $0 }
}

private let conversations: [[[UInt8]]] = [
    [PgOutput.begin(commit: 100), PgOutput.commit(100, end: 130)],
    [
        PgOutput.begin(commit: 100), PgOutput.origin("elsewhere"), PgOutput.type(90_000, "mood"), table(2),
        PgOutput.insert(2, [1, "a"]), PgOutput.update(2, [1, .unchanged]),
        PgOutput.update(2, old: .key([1, nil]), [2, ""]), PgOutput.update(2, old: .full([2, ""]), [2, .binary([0])]),
        PgOutput.delete(2, .key([2, nil])), PgOutput.truncate([2], options: 3), PgOutput.logical("p", [1, 2]),
        PgOutput.commit(100, end: 130), PgOutput.logical("alone", [3], isTransactional: false, lsn: 140),
    ],
    [
        table(1), PgOutput.begin(commit: 100), PgOutput.insert(1, [1, nil]), wideTable(1),
        PgOutput.insert(1, [1, nil, "x"]), PgOutput.commit(100, end: 130),
    ],
    [
        PgOutput.streamStart(xid: 8), PgOutput.origin("elsewhere"), table(2, xid: 8),
        PgOutput.insert(2, [1, "a"], xid: 8),
        PgOutput.insert(2, [2, "b"], xid: 9), PgOutput.streamStop(), PgOutput.streamStart(xid: 10), table(2, xid: 10),
        PgOutput.delete(2, .full([5, "c"]), xid: 10), PgOutput.streamStop(),
        PgOutput.streamAbort(xid: 8, subtransaction: 9), PgOutput.streamStart(xid: 8, isFirst: false),
        PgOutput.truncate([2], xid: 8), PgOutput.logical("p", [1], xid: 8), PgOutput.streamStop(),
        PgOutput.streamCommit(xid: 8, commit: 100, end: 130), PgOutput.streamAbort(xid: 10),
    ],
]

private func table(_ oid: UInt32, xid: UInt32? = nil) -> [UInt8] {
    PgOutput.relation(oid, "t", [.init("id", type: 20, isIdentity: true), .init("v", type: 90_000)], xid: xid)
}

private func wideTable(_ oid: UInt32) -> [UInt8] {
    PgOutput.relation(oid, "t", identity: .full, [.init("id"), .init("v"), .init("w")])
}
