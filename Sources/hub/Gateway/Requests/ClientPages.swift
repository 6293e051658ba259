import Bytes
import Diagnostics
import Net
import Settings
import System
import WebSocket

/// Pages that answer requests for health, metrics and the description of the HTTP interface.
final class ClientPages: ClientPart {
    unowned let home: ClientLoop

    init(of home: ClientLoop) { self.home = home }

    func page(_ route: Route, _ request: HTTPRequest) -> HTTPResponse {
        switch route {
        case .health: HTTPResponse(.ok, contentType: "text/plain; charset=utf-8", body: Array("ok".utf8))
        case .ready: readiness(request)
        case .readyOne(let name): readiness(of: name)
        case .metrics: metricsPage(request)
        case .ping: ping(request)
        case .openAPI: HTTPResponse(.ok, contentType: HTTPResponse.jsonContentType, body: OpenAPI.document)
        case .front:
            HTTPResponse(
                .ok, contentType: "text/plain; charset=utf-8",
                body: Array("Tidewire \(Product.version) is here. Clients connect to /realtime/v1.\n".utf8))
        case .unknown, .socket, .echo, .broadcast, .broadcastOne, .changes, .tenants, .console:
            .json(.notFound, Array(#""Not Found""#.utf8))
        }
    }

    private func ping(_ request: HTTPRequest) -> HTTPResponse {
        do throws(NotServed) {
            let project = try home.project(of: request)
            var response = HTTPResponse.json(.ok, Array(#"{"message":"Success"}"#.utf8))
            response.headers += project.rates.headers(at: loop.now)
            return response
        } catch {
            return error.response
        }
    }

    /// Returns the readiness of a hub with all of its projects. One ready project is enough: if a project that is down
    /// made the hub unready, a load balancer would send the clients of all others away. Only clients that may read the
    /// metrics receive the names of projects that are down.
    private func readiness(_ request: HTTPRequest) -> HTTPResponse {
        let running = shared.directory.all.map { (name: $0.name, condition: $0.condition()) }
        let conditions = running + shared.directory.absent.map { ($0.name, ProjectHealthReport(absent: $0.absence)) }
        guard let best = conditions.first(where: \.condition.isReady) ?? conditions.first else {
            return .json(.serviceUnavailable, Array(#"{"ready":false}"#.utf8))
        }
        var report = best.condition
        if conditions.count > 1 {
            let down = conditions.filter { !$0.condition.isReady }.map(\.name)
            report.others = ProjectHealthReport.Others(
                count: conditions.count, notReady: down.count, names: mayReadMetrics(request) ? down : nil)
        }
        return readiness(report)
    }

    private func readiness(of name: String) -> HTTPResponse {
        switch shared.directory.entry(named: name) {
        case .running(let project): readiness(project.condition())
        case .absent(let absence): readiness(ProjectHealthReport(absent: absence))
        case .deleted, nil: .message(.notFound, "there is no such project")
        }
    }

    private func readiness(_ report: ProjectHealthReport) -> HTTPResponse {
        .json(report.isReady && !home.farewells.haveBegun ? .ok : .serviceUnavailable, report.json)
    }

    private func mayReadMetrics(_ request: HTTPRequest) -> Bool {
        shared.settings.metricsGate?.admits(request, at: loop.time.unixSeconds) ?? true
    }

    private func metricsPage(_ request: HTTPRequest) -> HTTPResponse {
        guard mayReadMetrics(request) else { return HTTPResponse(HTTPStatus.forbidden) }
        shared.process.look(at: loop.now)
        let projects = shared.directory.all
        // Projects that do not run have zeros in the metrics, so that alerts on them still work.
        let absent = shared.directory.absent.map { absent in
            ProjectMetrics(of: absent.name == shared.settings.mainProject ? nil : absent.name)
        }
        return HTTPResponse(
            .ok, contentType: "text/plain; version=0.0.4; charset=utf-8",
            body: metrics.render(projects.map(\.metrics) + absent) + ReferenceMetrics.render(projects))
    }
}
