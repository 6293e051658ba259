import TestSupport
import Testing

@testable import Bench

@Suite(.within(minutes: 10)) struct SamplesTests {
    @Test func `the median is the middle one, or the mean of two`() {
        #expect(Samples([3, 1, 2]).median == 2)
        #expect(Samples([4, 1, 2, 3]).median == 2.5)
        #expect(Samples([7]).median == 7)
        #expect(Samples().median.isNaN)
    }

    @Test func `ratios compare the same round`() {
        let ratios = Samples([100, 50]).ratios(to: Samples([100, 100]))
        #expect(ratios.values == [1, 0.5])
        #expect(ratios.median == 0.75)
    }
}

@Suite(.within(minutes: 10)) struct BenchResultTests {
    private func result(
        _ values: [Double], _ baseline: [Double]? = nil, _ target: Target?, less: Bool = false
    ) -> BenchResult {
        BenchResult(
            scenario: "s", caseName: "c", metric: "m", unit: "u", values: Samples(values),
            baseline: baseline.map { .init("b", Samples($0)) }, target: target, isLessBetter: less)
    }

    @Test func `more than one is better, of times too`() {
        #expect(result([20], [10], nil).ratio == 2)
        #expect(result([20], [10], nil, less: true).ratio == 0.5)
        #expect(result([20], nil, nil).ratio == nil)
    }

    @Test func `targets are reached at their very value`() {
        #expect(result([95], [100], .ratioAtLeast(0.95)).isReached == true)
        #expect(result([94], [100], .ratioAtLeast(0.95)).isReached == false)
        #expect(result([150], nil, .valueAtMost(150)).isReached == true)
        #expect(result([151], nil, .valueAtMost(150)).isReached == false)
        #expect(result([5], nil, .valueAtLeast(5)).isReached == true)
        #expect(result([4.9], nil, .valueAtLeast(5)).isReached == false)
    }

    @Test func `a small run is not judged`() {
        var small = result([1], [100], .ratioAtLeast(0.95))
        small.isJudged = false
        #expect(small.isReached == nil)
        #expect(result([1], nil, nil).isReached == nil)
    }
}

@Suite(.within(minutes: 10)) struct IngestShapeTests {
    @Test func `shapes are those of the issue`() {
        let shapes = IngestShape.all(isQuick: false)
        #expect(shapes.map(\.rowsPerTransaction) == [1, 1000, 1000, 1_000_000])
        #expect(shapes.allSatisfy { $0.rows % $0.rowsPerTransaction == 0 })
        #expect(
            IngestShape.all(isQuick: true).allSatisfy { $0.rows % $0.rowsPerTransaction == 0 && $0.transactions > 0 })
    }
}
