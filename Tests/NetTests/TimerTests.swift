import Synchronization
import TestSupport
import Testing

@testable import Net

@Suite(.within(minutes: 10)) struct TimerTests {
    @Test func `timers fire in their order, but for those that were cancelled`() throws {
        let stage = try Stage()
        stage.act { loop in
            loop.after(nanoseconds: 30_000_000, token: 3)
            let never = loop.after(nanoseconds: 5_000_000, token: 99)
            loop.after(nanoseconds: 10_000_000, token: 1)
            loop.after(nanoseconds: 20_000_000, token: 2)
            loop.cancel(never)
            loop.cancel(never)
        }
        let tokens = stage.diary.wait { entries in
            let tokens = entries.compactMap { if case .timeIsUp(let token) = $0 { token } else { nil } }
            return tokens.count == 3 ? tokens : nil
        }
        #expect(tokens == [1, 2, 3])
    }

    @Test(arguments: seeds(5)) func `agrees with a sorted list`(seed: Seed) {
        var state = seed.number &* 0x9e37_79b9_7f4a_7c15
        func random(_ bound: UInt64) -> UInt64 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return (state >> 33) % bound
        }
        var heap = TimerHeap()
        var model: [UInt64: (deadline: UInt64, id: TimerID)] = [:]
        var now: UInt64 = 0
        for token in 0..<20_000 as Range<UInt64> {
            switch random(4) {
            case 0, 1:
                let deadline = now + random(1000)
                model[token] = (deadline, heap.add(deadline: deadline, token: token))
            case 2:
                guard let victim = model.keys.min(by: { $0 &* 31 % 101 < $1 &* 31 % 101 }) else { continue }
                if let timer = model.removeValue(forKey: victim) {
                    heap.cancel(timer.id)
                    heap.cancel(timer.id)
                }
            default:
                now += random(20)
                var due: [UInt64] = []
                while let token = heap.popDue(now) { due.append(token) }
                let expected = model.filter { $0.value.deadline <= now }
                #expect(Set(due) == Set(expected.keys))
                let deadlines = due.compactMap { model[$0]?.deadline }
                #expect(deadlines == deadlines.sorted())
                for token in due { model[token] = nil }
            }
            if model.count > 60 {
                model = model.filter { keep in
                    if keep.key % 2 == 0 { return true }
                    heap.cancel(keep.value.id)
                    return false
                }
            }
            #expect(heap.count == model.count)
        }
    }

    @Test func `a hundred thousand timers come and go`() {
        var heap = TimerHeap()
        let ids = (0..<100_000 as Range<UInt64>).map { heap.add(deadline: $0 &* 7919 % 100_003, token: $0) }
        for (number, id) in ids.enumerated() where number % 2 == 0 { heap.cancel(id) }
        var fired = 0
        while heap.popDue(.max) != nil { fired += 1 }
        #expect(fired == 50_000)
        #expect(heap.nextDeadline == nil)
    }
}
