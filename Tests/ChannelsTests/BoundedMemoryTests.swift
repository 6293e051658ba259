import Channels
import TestSupport
import Testing

@Suite(.within(minutes: 1)) struct BoundedMemoryTests {
    /// Compares the memory with a model that drops nothing. The memory must never report `never` for a key that was
    /// remembered and not removed.
    @Test(arguments: seeds(50)) func `what was dropped is owed`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        var memory = BoundedMemory<Int, Int>(maximum: 8)
        var model: [Int: Int] = [:]
        for step in 0..<400 {
            let key = Int.random(in: 0..<24, using: &random)
            if random.next() % 3 != 0 {
                memory.remember(step, for: key)
                model[key] = step
            } else {
                switch memory.take(key) {
                case .kept(let value): #expect(value == model[key])
                case .never: #expect(model[key] == nil, "\(key) was remembered, and is denied")
                case .mayBeForgotten: break
                }
                model[key] = nil
            }
            #expect(memory.count <= 8)
        }
    }

    @Test func `a memory with room for everything denies what it does not have`() {
        var memory = BoundedMemory<Int, Void>(maximum: 2)
        memory.remember((), for: 1)
        memory.remember((), for: 1)
        if case .never = memory[2] {} else { Issue.record("2 was never remembered") }
        memory.remember((), for: 2)
        memory.remember((), for: 3)
        if case .mayBeForgotten = memory[1] {} else { Issue.record("1 was dropped") }
        if case .kept = memory[2] {} else { Issue.record("2 is younger than 1") }
    }
}
