import Bytes
import Catalog
import Policy
import System
import TestSupport
import Testing

@testable import Gateway

@Suite(.within(minutes: 1)) struct RepublicationsTests {
    private func table(_ oid: UInt32, by entries: String) -> CatalogTable {
        CatalogTable(
            oid: oid, schema: "public", name: "t\(oid)", columns: [], primaryKey: [], identity: .full,
            hasRowSecurity: false, forcesRowSecurity: false, hasPolicies: false, operations: .all,
            publishedBy: entries)
    }

    @Test func `a table that is in the publication by another row misses what was before`() {
        var known = Republications()
        known.take([table(1, by: "10"), table(2, by: "11")], at: 100)
        #expect(known.wholeFrom(1) == 0 && known.latest == 0)
        known.take([table(1, by: "12"), table(2, by: "11")], at: 150)
        // A channel whose position is the end may have missed a change, if nothing else was written since.
        #expect(known.wholeFrom(1) == 151 && known.wholeFrom(2) == 0 && known.latest == 151)
        known.take([table(1, by: "12"), table(2, by: "11")], at: 200)
        #expect(known.wholeFrom(1) == 151)
    }

    @Test func `one that was seen to be away is remembered`() {
        var known = Republications()
        known.take([table(1, by: "10"), table(2, by: "11")], at: 100)
        known.take([table(2, by: "11")], at: 120)
        known.take([table(1, by: "12"), table(2, by: "11")], at: 150)
        #expect(known.wholeFrom(1) == 151)
    }

    @Test func `what comes and goes for ever is not remembered for ever`() {
        var known = Republications()
        for number in 0..<UInt32(5000) {
            known.take([table(1, by: "10"), table(10 + number, by: "\(number)")], at: UInt64(number))
            #expect(known.count <= 1025)
        }
        known.take([table(1, by: "11")], at: 9000)
        #expect(known.wholeFrom(1) == 9001)
    }

    @Test func `a log that was begun anew is not waited for beyond its end`() {
        var known = Republications()
        known.take([table(1, by: "10")], at: 100)
        known.take([table(1, by: "12")], at: 150)
        known.take([table(1, by: "12")], at: 7)
        #expect(known.wholeFrom(1) == 8 && known.latest == 8)
    }

    // MARK: Across restarts

    private let directory = MemoryDirectory()

    private func snapshot(_ version: UInt64, _ tables: CatalogTable...) -> CatalogSnapshot {
        CatalogSnapshot(version: version, publication: "p", tables: tables, text: .plainUTF8)
    }

    @Test func `what was noticed is known to the next process, and so is what was otherwise before`() {
        let first = PublicationRecord(in: directory)
        first.take(snapshot(1, table(1, by: "10"), table(2, by: "20"), table(3, by: "")), at: 100)
        first.take(snapshot(2, table(1, by: "11"), table(2, by: "20"), table(3, by: "")), at: 150)
        first.flush()
        let second = PublicationRecord(in: directory)
        #expect(second.wholeFrom(1, at: nil) == 151 && second.latest(at: nil) == 151)
        second.take(snapshot(1, table(1, by: "11"), table(2, by: "21"), table(3, by: "")), at: 200)
        #expect(second.wholeFrom(1, at: 200) == 151 && second.wholeFrom(2, at: 200) == 201)
        #expect(second.wholeFrom(3, at: 200) == 0 && second.latest(at: 200) == 201)
    }

    @Test func `where the log ends may be known later than the catalog`() {
        let first = PublicationRecord(in: directory)
        first.take(snapshot(1, table(1, by: "10")), at: 100)
        first.flush()
        let second = PublicationRecord(in: directory)
        second.take(snapshot(1, table(1, by: "11")), at: nil)
        second.flush()
        #expect(second.wholeFrom(1, at: nil) == 0)
        #expect(PublicationRecord(in: directory).wholeFrom(1, at: 300) == 0, "nothing was written down yet")
        #expect(second.wholeFrom(1, at: 300) == 301)
        second.flush()
        #expect(PublicationRecord(in: directory).wholeFrom(1, at: 300) == 301)
    }

    @Test func `an older catalog says nothing about a newer one`() {
        let record = PublicationRecord(in: nil)
        record.take(snapshot(2, table(1, by: "11")), at: 100)
        record.take(snapshot(1, table(1, by: "10")), at: 100)
        #expect(record.wholeFrom(1, at: 100) == 0)
    }

    private func read(_ bytes: [UInt8]) throws(ByteError) -> Republications {
        try Republications(encoded: bytes.span.bytes)
    }

    @Test func `a record that cannot be read leaves every table's past unknown, also for the process after`() throws {
        try directory.replace(PublicationRecord.fileName, with: [1, 2, 3].rawBytes)
        let record = PublicationRecord(in: directory)
        #expect(record.wholeFrom(1, at: 100) == 0 && record.latest(at: 100) == 0, "nobody has joined before a catalog")
        record.take(snapshot(1, table(1, by: "10")), at: 100)
        #expect(record.wholeFrom(1, at: 100) == 101 && record.wholeFrom(2, at: 100) == 101)
        #expect(record.latest(at: 100) == 101)
        record.take(snapshot(2, table(1, by: "10")), at: 200)
        #expect(record.wholeFrom(1, at: 200) == 101, "from there on everything is known")
        record.flush()
        #expect(PublicationRecord(in: directory).wholeFrom(1, at: 200) == 101)
    }

    @Test func `a record of the version before is read`() throws {
        var old = ByteWriter(capacity: 64)
        old.append(UInt8(1))
        old.append(little: UInt32(1))
        old.append(little: UInt32(7))
        old.append(little: UInt64(151))
        old.append(little: UInt32(2))
        old.append("10")
        old.append(little: CRC32C.of(old.bytes))
        let known = try read(old.copied())
        #expect(known.wholeFrom(7) == 151 && known.wholeFrom(8) == 0 && known.latest == 151)
    }

    @Test func `whatever the file holds, the hub begins`() throws {
        let record = PublicationRecord(in: directory)
        record.take(snapshot(1, table(1, by: "10"), table(2, by: "a mark of some length")), at: 100)
        record.take(snapshot(2, table(1, by: "11"), table(2, by: "a mark of some length")), at: 100)
        record.flush()
        let whole = try directory.open(PublicationRecord.fileName, for: .reading).contents(atMost: 1 << 20)
        #expect(try read(whole).wholeFrom(1) == 101)
        for cut in 0..<whole.count {
            #expect(throws: ByteError.self) { try read(Array(whole[..<cut])) }
            var spoiled = whole
            spoiled[cut] ^= 0x40
            let damaged = spoiled
            #expect(throws: ByteError.self) { try read(damaged) }
            let file = try directory.open(PublicationRecord.fileName, for: .creating)
            try file.write(spoiled.span.bytes, at: 0)
            let begun = PublicationRecord(in: directory)
            begun.take(snapshot(1, table(1, by: "11")), at: 200)
            #expect(begun.wholeFrom(1, at: 200) == 201)
        }
    }

    @Test func `a record that cannot be written is written later`() throws {
        let record = PublicationRecord(in: directory)
        record.take(snapshot(1, table(1, by: "10")), at: 100)
        directory.beFull(for: 1)
        #expect(record.flush() == false)
        #expect(try !directory.names().contains(PublicationRecord.fileName))
        #expect(record.flush() == true)
        #expect(try directory.names().contains(PublicationRecord.fileName))
    }

    @Test func `a thread that writes tries again until it succeeds, without being told`() throws {
        let writer = BackgroundWriter("test", retry: .milliseconds(1))
        let tries = Pulse()
        try writer.start {
            tries.beat()
            return tries.value == 3
        }
        writer.wake()
        #expect(tries.wait(beyond: 2, untilMonotonic: Clock.monotonicNanoseconds() + 60_000_000_000) == 3)
        writer.stop()
        #expect((4...5).contains(tries.value), "it writes at its end, and not without a reason before")
    }
}
