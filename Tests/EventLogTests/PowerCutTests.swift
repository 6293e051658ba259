import EventLog
import System
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct PowerCutTests {
    @Test(arguments: seeds(400))
    func `keeps everything published and shows no half transaction`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let storage = FaultyStorage()
        var run = Run(storage: storage)
        for _ in 0..<4 {
            try run.write(&random)
            if Bool.random(using: &random) { storage.powerCut(&random) } else { storage.processDied() }
            try run.check(seed)
        }
    }

    /// Series of writers on one disk, with the transactions that they published.
    private struct Run {
        let storage: FaultyStorage
        /// Transactions in order, each with all its entries. The first `published` of them were published.
        var transactions: [[Seen]] = []
        var published = 0
        var lsn: UInt64 = 0

        mutating func write(_ random: inout SeededRandom) throws {
            let writer = try open()
            try adoptWhatSurvived()
            for _ in 0..<Int.random(in: 1...12, using: &random) {
                do { try step(writer, &random) } catch is EventLogFailure { storage.setFaults { _ in } }
            }
        }

        /// Opens the log. If a fault occurs, opens it again.
        private func open() throws -> EventLogWriter {
            do {
                return try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 40_000))
            } catch EventLogError.failure {
                storage.setFaults { _ in }
                return try EventLogWriter(directory: storage, options: testOptions(segmentBytes: 40_000))
            }
        }

        /// Accepts the entries that survived. Unpublished transactions may be missing, but only all of them from some
        /// transaction on.
        private mutating func adoptWhatSurvived() throws {
            let found = try readAll(storage)
            var count = 0
            var entries = 0
            while count < transactions.count, entries < found.count {
                entries += transactions[count].count
                count += 1
            }
            transactions.removeSubrange(count...)
            lsn = found.last?.lsn ?? 0
            // The writer reported this to its caller when it opened the log.
            published = transactions.count
        }

        private mutating func step(_ writer: EventLogWriter, _ random: inout SeededRandom) throws {
            switch Int.random(in: 0..<10, using: &random) {
            case 0...5: try transaction(writer, &random)
            case 6: try abandoned(writer, &random)
            case 7: try writer.rollIfNeeded(adding: 10_000)
            case 8: fail(&random)
            default:
                try writer.flush()
                published = transactions.count
            }
        }

        private func fail(_ random: inout SeededRandom) {
            let (kind, after) = (Int.random(in: 0..<2, using: &random), Int.random(in: 0..<3, using: &random))
            let torn = Int.random(in: 0..<9000, using: &random)
            storage.setFaults { faults in
                if kind == 0 { faults.failSyncAfter = after } else { faults.failWriteAfter = after }
                faults.tornBytes = torn
            }
        }

        private mutating func transaction(_ writer: EventLogWriter, _ random: inout SeededRandom) throws {
            // As a real source does, the test sends an incomplete transaction again after a failure.
            writer.abandonTransaction()
            var entries: [Seen] = []
            let parts = Int.random(in: 1...3, using: &random)
            lsn += 1
            for part in 1...parts {
                // Only few sizes are used, so that old and new entries often begin at the same places.
                let size = random.pick([10, 3000, 4048, 9000])
                entries.append(
                    try writer.put(payload(random.next(), size), continued: part < parts, changes: 2, lsn: lsn))
            }
            transactions.append(entries)
        }

        private mutating func abandoned(_ writer: EventLogWriter, _ random: inout SeededRandom) throws {
            lsn += 1
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                try writer.put(payload(random.next(), 4048), continued: true, changes: 2, lsn: lsn)
            }
            // Sometimes the transaction's parts are flushed before its end.
            if Bool.random(using: &random) {
                try writer.flush()
                published = transactions.count
            }
            writer.abandonTransaction()
        }

        func check(_ seed: Seed) throws {
            let found = try readAll(storage)
            let all = transactions.flatMap { $0 }
            #expect(found == Array(all.prefix(found.count)), "seed \(seed): not what was written")
            let published = transactions.prefix(published).flatMap { $0 }
            #expect(found.count >= published.count, "seed \(seed): published entries are gone")
            #expect(found.last?.continued != true, "seed \(seed): half a transaction")
        }
    }
}
