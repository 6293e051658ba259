import TestSupport
import Testing

@testable import Gateway

/// Tests of what `/ready` says about a node of a cluster.
@Suite(.within(minutes: 1)) struct ReadinessTests {
    private func report(far isFarBehind: Bool, refusal: String? = nil, streaming: Bool = true) -> ProjectHealthReport {
        var report = ProjectHealthReport(
            isStreaming: streaming, isLogWritable: true, isCatalogKnown: true, clients: 0, trouble: nil)
        report.node = ProjectHealthReport.Node(
            name: "hub1", state: refusal == nil ? "following" : "refused", missing: 7, lagSeconds: 12.5,
            isFarBehind: isFarBehind, refusal: refusal)
        return report
    }

    private func text(_ report: ProjectHealthReport) -> String { String(decoding: report.json, as: UTF8.self) }

    @Test func `a node that is a little behind takes clients`() {
        let report = report(far: false)
        #expect(report.isReady)
        #expect(
            text(report).contains(
                #""cluster":{"node":"hub1","state":"following","far_behind":false,"lag_messages":7,"lag_seconds":12.5}"#
            ))
    }

    @Test func `clients go elsewhere from a node that is far behind or refused`() {
        let behind = report(far: true)
        #expect(!behind.isReady && text(behind).hasPrefix(#"{"ready":false"#))
        let refused = report(far: true, refusal: "log_ahead", streaming: false)
        #expect(!refused.isReady && text(refused).contains(#""refusal":"log_ahead"}"#))
    }

    @Test func `a hub on its own says nothing of a cluster`() {
        let alone = ProjectHealthReport(
            isStreaming: true, isLogWritable: true, isCatalogKnown: true, clients: 0, trouble: nil)
        #expect(alone.isReady && !text(alone).contains("cluster"))
    }
}
