import Bytes
import TestSupport
import Testing

@testable import History

/// Checks the compact rows against a dictionary, with keys and images of all lengths.
@Suite(.within(minutes: 5)) struct CompactRowsTests {
    private struct Known: Equatable {
        var image: [UInt8]?
        var offset: UInt64 = 0
        var gone: Int?
        var isSettled = false
    }

    @Test(arguments: seeds(12)) func `hold what a dictionary holds`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        var rows = CompactRows()
        var model: [[UInt8]: Known] = [:]
        let keys = Int(2 + random.next() % 3000)
        let longest = [3, 40, 900, 300_000][Int(random.next() % 4)]
        let steps = longest > 10_000 ? 300 : 12_000
        for step in 0..<steps {
            let key = Array("key \(random.next() % UInt64(keys))".utf8)
            let gaps = step / 2000
            switch random.next() % 10 {
            case 0...5:
                let image = [UInt8](repeating: UInt8(step & 255), count: Int(random.next() % UInt64(longest)))
                rows.set(
                    key.rawBytes, image.rawBytes,
                    CompactRows.Facts(offset: UInt64(step), gaps: UInt32(gaps), relation: 7))
                var known = model[key] ?? Known()
                (known.image, known.offset, known.gone) = (image, UInt64(step), nil)
                model[key] = known
            case 6...7:
                if let number = rows.find(key.rawBytes) { rows.removeRow(number) }
                model[key]?.image = nil
                if let known = model[key], known.gone == nil, !known.isSettled { model[key] = nil }
            case 8:
                if let number = rows.find(key.rawBytes) { rows.removeRow(number) }
                rows.note(gone: key.rawBytes, gaps: gaps)
                model[key, default: Known()].image = nil
                model[key, default: Known()].gone = gaps
            default:
                let isNew = rows.note(settled: key.rawBytes)
                #expect(isNew == !(model[key]?.isSettled ?? false))
                model[key, default: Known()].isSettled = true
            }
            if step % 2500 == 2499 {
                rows.forgetGone()
                model = model.filter { $0.value.image != nil || $0.value.isSettled }
            }
            if step % 997 == 0 || step == steps - 1 { try check(rows, model, gaps: gaps) }
        }
        rows.removeAll()
        #expect(rows.rowCount == 0 && rows.noteCount == 0 && rows.ordered.isEmpty)
    }

    private func check(_ rows: CompactRows, _ model: [[UInt8]: Known], gaps: Int) throws {
        #expect(rows.rowCount == model.values.count { $0.image != nil })
        #expect(rows.noteCount == model.values.count { $0.image == nil })
        for (key, known) in model {
            let found = rows.find(key.rawBytes)
            let number = try #require(found)
            #expect(rows.key(of: number) == key)
            #expect(
                rows.isSettled(number) == known.isSettled && rows.isGone(number, gaps: gaps) == (known.gone == gaps))
            let facts = rows.facts(of: number)
            #expect((facts != nil) == (known.image != nil))
            guard let image = known.image else { continue }
            #expect(rows.image(of: number) == image && facts?.offset == known.offset && facts?.relation == 7)
        }
        let offsets = rows.ordered.map { rows.facts(of: Int($0))?.offset ?? .max }
        #expect(offsets == offsets.sorted() && offsets.count == rows.rowCount)
    }
}
